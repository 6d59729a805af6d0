package native

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// costVariable holds the number of rounds; make bench-python sets it.
const costVariable = "MINISGL_PYTHON_COST"

// load is what both sides are asked, and timed what the Python side answers.
type load struct {
	Prompts   [][]int32 `json:"prompts"`
	MaxTokens int       `json:"max_tokens"`
}

type timed struct {
	Seconds  float64   `json:"seconds"`
	TokenIDs [][]int32 `json:"token_ids"`
}

// roundsOfPair is how many rounds a pair of processes has.
const roundsOfPair = 4

// TestWhatPythonCosts measures LLM.generate in a Python process beside
// llm.Generate in this one: the same model and options, the same requests, in
// turns. Each round has prompts of its own, so none is found in a cache. The
// tokens must be equal. Engines are opened anew after a few rounds: one has
// faster memory than another, by more than what is measured.
func TestWhatPythonCosts(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(costVariable))
	if err != nil || rounds < 1 {
		t.Skipf("it takes minutes: make bench-python, or %s=40, the number of rounds", costVariable)
	}
	random := rand.New(rand.NewPCG(0, 0))
	var costs []float64
	for left := rounds; left > 0; left -= roundsOfPair {
		t.Run("pair", func(t *testing.T) {
			g, p := comparePair(t, random, min(left, roundsOfPair))
			costs = append(costs, 100*(p/g-1))
			t.Logf("medians of Go %.3f s, of Python %.3f s: %+.1f %%", g, p, costs[len(costs)-1])
		})
	}
	if len(costs) == 0 {
		return // the pairs have told why
	}
	t.Logf("median of %d pairs: Python costs %+.1f %% (the aim is at most 2 %%)", len(costs), median(costs))
}

// comparePair returns the medians of Go's and of Python's seconds.
func comparePair(t *testing.T, random *rand.Rand, rounds int) (ofGo, ofPython float64) {
	t.Helper()
	model := cmp.Or(os.Getenv("MODEL"), "smollm2-135m")
	const pages = 8192
	e, err := llm.New(t.Context(), llm.Config{Model: model, NumPageOverride: pages, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	inPython := startPython(t, map[string]any{"model_path": e.Info().Path, "dtype": "auto", "num_page_override": pages})
	var seconds [2][]float64
	for round := range rounds + 1 { // the first warms up
		l := newLoad(random, e.Info().VocabSize)
		var answers [2]timed
		for i := range answers {
			side := (i + round) % 2
			if side == 0 {
				answers[side] = generateTimed(t, e, l)
			} else {
				answers[side] = inPython(l)
			}
		}
		if !reflect.DeepEqual(answers[0].TokenIDs, answers[1].TokenIDs) {
			t.Fatalf("round %d: the tokens differ", round)
		}
		for side := range seconds {
			if round > 0 {
				seconds[side] = append(seconds[side], answers[side].Seconds)
			}
		}
	}
	return median(seconds[0]), median(seconds[1])
}

// newLoad draws 32 prompts of 64 ids, to be answered with 64 tokens each.
func newLoad(random *rand.Rand, vocabulary int) load {
	l := load{Prompts: make([][]int32, 32), MaxTokens: 64}
	for i := range l.Prompts {
		l.Prompts[i] = make([]int32, 64)
		for k := range l.Prompts[i] {
			l.Prompts[i][k] = random.Int32N(int32(vocabulary))
		}
	}
	return l
}

func generateTimed(t *testing.T, e *llm.LLM, l load) timed {
	t.Helper()
	params := llm.DefaultSampling()
	params.MaxTokens, params.IgnoreEOS = l.MaxTokens, true
	requests := make([]llm.Request, len(l.Prompts))
	for i, ids := range l.Prompts {
		requests[i] = llm.Request{TokenIDs: ids, Params: params}
	}
	begin := time.Now()
	outputs, err := e.Generate(t.Context(), requests, nil)
	out := timed{Seconds: time.Since(begin).Seconds()}
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outputs {
		out.TokenIDs = append(out.TokenIDs, o.TokenIDs)
	}
	return out
}

// startPython loads the model in a Python process, scripts/timed_generate.py,
// and returns what it answers a load with.
func startPython(t *testing.T, options map[string]any) func(load) timed {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	lasting := context.WithoutCancel(t.Context()) // it is cancelled before the clean-up, which lets Python end by itself
	python := exec.CommandContext(lasting, filepath.Join(root, ".venv/bin/python"), filepath.Join(root, "scripts/timed_generate.py"))
	python.Stderr = os.Stderr
	in, err := python.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := python.Wait(); err != nil {
			t.Error(err)
		}
	})
	send, answers := json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	if err := send.Encode(options); err != nil {
		t.Fatal(err)
	}
	return func(l load) (answer timed) {
		t.Helper()
		if err := send.Encode(l); err != nil {
			t.Fatal(err)
		}
		if err := answers.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

package native

import (
	"bufio"
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

// TestWhatPythonCosts measures LLM.generate in a Python process beside
// llm.Generate in this one: the same model and options, the same requests, in
// turns. Each round has prompts of its own, so none is found in a cache. The
// tokens must be equal.
func TestWhatPythonCosts(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(costVariable))
	if err != nil || rounds < 1 {
		t.Skipf("it takes minutes: make bench-python, or %s=20, the number of rounds", costVariable)
	}
	model := os.Getenv("MODEL")
	if model == "" {
		model = "smollm2-135m"
	}
	const pages = 8192
	e, err := llm.New(t.Context(), llm.Config{Model: model, NumPageOverride: pages, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	inPython := startPython(t, map[string]any{"model_path": e.Info().Path, "dtype": "auto", "num_page_override": pages})
	inGo := func(l load) timed { return generateTimed(t, e, l) }

	random := rand.New(rand.NewPCG(0, 0))
	var ofGo, ofPython []float64
	for round := range rounds + 1 {
		l := newLoad(random, e.Info().VocabSize)
		first, second := inGo, inPython
		if round%2 == 1 {
			first, second = inPython, inGo
		}
		a, b := first(l), second(l)
		if !reflect.DeepEqual(a.TokenIDs, b.TokenIDs) {
			t.Fatalf("round %d: the tokens differ", round)
		}
		if round%2 == 1 {
			a, b = b, a
		}
		if round == 0 {
			continue // it warms up
		}
		ofGo, ofPython = append(ofGo, a.Seconds), append(ofPython, b.Seconds)
		t.Logf("round %d: Go %.3f s, Python %.3f s: %+.1f %%", round, a.Seconds, b.Seconds, 100*(b.Seconds/a.Seconds-1))
	}
	g, p := median(ofGo), median(ofPython)
	t.Logf("medians of %d rounds: Go %.3f s, Python %.3f s: Python costs %+.1f %% (the aim is at most 2 %%)", rounds, g, p, 100*(p/g-1))
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

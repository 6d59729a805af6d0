package llm_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// withLogprobs asks for all log-probabilities, and top alternatives.
func withLogprobs(req llm.Request, top int) llm.Request {
	req.Params.Logprobs, req.Params.TopLogprobs, req.Params.PromptLogprobs = true, top, new(0)
	return req
}

// logSoftmax is the definition, in float64.
func logSoftmax(logits []float64) []float64 {
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(x)
	}
	out := make([]float64, len(logits))
	for i, x := range logits {
		out[i] = x - math.Log(sum)
	}
	return out
}

// TestLogprobsEqualTransformers compares with the softmax of the logits that
// transformers computed for the first and the last position of prompts.
func TestLogprobsEqualTransformers(t *testing.T) {
	text, err := os.ReadFile(tinyModel + "/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Prompts []struct {
			IDs         []int32
			First, Last []float64
		}
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	for _, dev := range []string{"cpu", "ref"} {
		l := open(t, llm.Config{Model: tinyModel, DType: "float32", Device: dev, NumPageOverride: 1024})
		n := l.Tokenizer().VocabSize()
		for i, p := range expected.Prompts {
			req := withLogprobs(greedy(p.IDs, 1), 20)
			req.Params.Temperature, req.Params.TopP, req.Params.TopK = 0.7, 0.9, 5
			out := generateOne(t, l, req)
			if len(p.IDs) > 1 {
				checkTop(t, out.PromptLogprobs[0], logSoftmax(p.First[:n]))
				if got := out.PromptLogprobs[0].Token; got != p.IDs[1] {
					t.Errorf("%s, prompt %d: the first log-probability is of token %d, want %d", dev, i, got, p.IDs[1])
				}
			}
			warm := make([]float64, n)
			for j := range warm {
				warm[j] = p.Last[j] / 0.7
			}
			checkTop(t, out.Logprobs[0], logSoftmax(warm))
		}
	}
}

func generateOne(t *testing.T, l *llm.LLM, req llm.Request) llm.Output {
	t.Helper()
	outs, err := l.Generate(t.Context(), []llm.Request{req}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return outs[0]
}

// checkTop compares a token's log-probability and the alternatives with the whole
// distribution.
func checkTop(t *testing.T, got llm.TokenLogprob, want []float64) {
	t.Helper()
	const tolerance = 2e-4
	if d := float64(got.Logprob) - want[got.Token]; math.Abs(d) > tolerance {
		t.Errorf("token %d: log-probability %v, want %v", got.Token, got.Logprob, want[got.Token])
	}
	sorted := slices.Clone(want)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	for k, top := range got.Top {
		if math.Abs(float64(top.Logprob)-want[top.Token]) > tolerance || math.Abs(float64(top.Logprob)-sorted[k]) > tolerance {
			t.Errorf("alternative %d: token %d with %v; it has %v, and that place has %v", k, top.Token, top.Logprob, want[top.Token], sorted[k])
		}
	}
}

// TestPromptLogprobsEqualOutputLogprobs: what a token had when it was generated
// is what it has as a part of a prompt, to the bit, however the prompt is computed.
func TestPromptLogprobsEqualOutputLogprobs(t *testing.T) {
	base := llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 4096, MaxSeqLenOverride: 128}
	prompt := workload(4)[3].TokenIDs
	out := generateOne(t, open(t, base), withLogprobs(greedy(prompt, 30), 3))
	want := slices.Concat(out.PromptLogprobs, out.Logprobs)
	if len(want) != len(prompt)-1+30 {
		t.Fatalf("%d log-probabilities for %d tokens", len(want), len(prompt)+30)
	}
	whole := slices.Concat(prompt, out.TokenIDs)
	for name, change := range map[string]func(*llm.Config){
		"defaults": func(*llm.Config) {},
		"chunks":   func(c *llm.Config) { c.MaxExtendTokens = 7 },
		"one row":  func(c *llm.Config) { c.MaxRunningReq = 1 },
		"pages":    func(c *llm.Config) { c.PageSize, c.NumPageOverride = 16, 256 },
		"tp":       func(c *llm.Config) { c.TPSize = 2 },
	} {
		cfg := base
		change(&cfg)
		l := open(t, cfg)
		for _, what := range []string{"cold", "cached"} {
			got := generateOne(t, l, withLogprobs(greedy(whole, 1), 3))
			if diff := cmp.Diff(want, got.PromptLogprobs); diff != "" {
				t.Errorf("%s, %s: (-generated +prompt)\n%s", name, what, diff)
			}
			from := len(prompt)
			req := withLogprobs(greedy(whole, 1), 3)
			req.Params.PromptLogprobs = &from
			part := generateOne(t, l, req)
			if diff := cmp.Diff(want[from:], part.PromptLogprobs); diff != "" {
				t.Errorf("%s, %s, from position %d: (-generated +prompt)\n%s", name, what, from, diff)
			}
			if part.Usage.CachedTokens == 0 && name != "pages" {
				t.Errorf("%s, %s: nothing of the positions before %d came from the cache", name, what, from)
			}
		}
	}
}

// TestLogprobsMetamorphic: log-probabilities are equal, to the bit, under every
// scheduling option, under preemption too; and a stream gives those of Generate.
func TestLogprobsMetamorphic(t *testing.T) {
	reqs := workload(12)
	for i := range reqs {
		reqs[i] = withLogprobs(reqs[i], i%4)
		if i%2 == 0 {
			reqs[i].Params.PromptLogprobs = nil
		}
	}
	base := llm.Config{Model: tinyModel, DType: "bfloat16", NumPageOverride: 4096, MaxSeqLenOverride: 128}
	l := open(t, base)
	want, err := l.Generate(t.Context(), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range want {
		if len(o.Logprobs) != len(o.TokenIDs) {
			t.Errorf("request %d: %d log-probabilities of %d tokens", i, len(o.Logprobs), len(o.TokenIDs))
		}
		if n := len(o.PromptLogprobs); i%2 == 1 && n != len(reqs[i].TokenIDs)-1 {
			t.Errorf("request %d: %d log-probabilities for a prompt of %d tokens", i, n, len(reqs[i].TokenIDs))
		}
	}
	for _, cfg := range policies(base) {
		got, err := open(t, cfg).Generate(t.Context(), reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if diff := cmp.Diff(want[i].Logprobs, got[i].Logprobs); diff != "" {
				t.Errorf("%+v: request %d: (-base +got)\n%s", cfg, i, diff)
			}
			if diff := cmp.Diff(want[i].PromptLogprobs, got[i].PromptLogprobs); diff != "" {
				t.Errorf("%+v: request %d, prompt: (-base +got)\n%s", cfg, i, diff)
			}
		}
	}
	for i, req := range reqs {
		var logprobs, prompt []llm.TokenLogprob
		for _, ev := range eventsOf(t, l, req) {
			if ev.HasToken != (ev.Logprob != nil) {
				t.Errorf("request %d: an event with a token %v, a log-probability %v", i, ev.HasToken, ev.Logprob)
			}
			if ev.Logprob != nil {
				logprobs = append(logprobs, *ev.Logprob)
			}
			prompt = append(prompt, ev.PromptLogprob...)
		}
		if i%4 == 0 || i%4 == 1 { // the others draw by their number
			if diff := cmp.Diff(want[i].Logprobs, logprobs); diff != "" {
				t.Errorf("request %d: (-Generate +Stream)\n%s", i, diff)
			}
		}
		if diff := cmp.Diff(want[i].PromptLogprobs, prompt); diff != "" {
			t.Errorf("request %d, prompt: (-Generate +Stream)\n%s", i, diff)
		}
	}
}

// eventsOf reads a stream to its end.
func eventsOf(t *testing.T, l *llm.LLM, req llm.Request) []llm.Event {
	t.Helper()
	s, err := l.Stream(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var events []llm.Event
	for {
		ev, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
		if ev.Finish != "" {
			return events
		}
	}
}

package llm_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// penalised gives requests every kind of penalty and bias, each its own.
func penalised(reqs []llm.Request) []llm.Request {
	for i := range reqs {
		p := &reqs[i].Params
		if i%5 == 4 {
			continue // some without any, beside the others
		}
		p.PresencePenalty = float64(i%3) * 0.7
		p.FrequencyPenalty = float64(i%4)*0.6 - 0.6
		p.RepetitionPenalty = 0.9 + float64(i%6)*0.15
		p.MinTokens = min(p.MaxTokens, i%7)
		p.LogitBias = []llm.TokenBias{{Token: int32(i), Bias: 3}, {Token: int32(i + 1), Bias: -100}}
	}
	return reqs
}

// TestPenaltiesMetamorphic: with penalties, which depend on the tokens before,
// tokens are equal under every scheduling option, too.
func TestPenaltiesMetamorphic(t *testing.T) {
	for _, dev := range []string{"cpu", "ref"} {
		reqs := penalised(workload(12))
		if dev == "ref" {
			reqs = reqs[:6]
		}
		base := llm.Config{Model: tinyModel, Device: dev, DType: "bfloat16", NumPageOverride: 4096, MaxSeqLenOverride: 128}
		want := tokens(t, open(t, base), reqs)
		if cmp.Equal(want, tokens(t, open(t, base), workload(12)[:len(reqs)])) {
			t.Fatal("the penalties change no token")
		}
		equalUnderPolicies(t, base, reqs, want)
	}
}

// TestPenaltiesUnderPreemption: a request that is put back and computed again
// counts its tokens as before.
func TestPenaltiesUnderPreemption(t *testing.T) {
	equalUnderPreemption(t, penalised)
}

// TestPenaltiesStepByStep works three tokens' penalties out by hand at each step:
// equal biases lift them above all others, so that the differences of their
// log-probabilities without penalties are those of their logits.
func TestPenaltiesStepByStep(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024})
	prompt := []int32{7, 40, 41, 40} // the tokens of the prompt don't count
	const presence, frequency, steps = 0.3, 0.25, 40
	req := greedy(prompt, steps)
	req.Params.LogitBias = []llm.TokenBias{{Token: 40, Bias: 90}, {Token: 41, Bias: 90}, {Token: 42, Bias: 90}}
	plain := req
	req.Params.PresencePenalty, req.Params.FrequencyPenalty = presence, frequency
	got := generateOne(t, l, req).TokenIDs
	count := map[int32]int{}
	for step, token := range got {
		next := plain
		next.TokenIDs = slices.Concat(prompt, got[:step])
		next.Params.MaxTokens, next.Params.Logprobs, next.Params.TopLogprobs = 1, true, 3
		best, most := int32(-1), 0.0
		for _, top := range generateOne(t, l, next).Logprobs[0].Top {
			x := float64(top.Logprob)
			if n := count[top.Token]; n > 0 {
				x -= presence + frequency*float64(n)
			}
			if best < 0 || x > most {
				best, most = top.Token, x
			}
		}
		if token != best {
			t.Fatalf("step %d: token %d, want %d", step, token, best)
		}
		count[token]++
	}
	if len(count) != 3 {
		t.Errorf("the penalties made it use %v, want all three tokens", count)
	}
}

// TestPenaltiesAlone: a request with penalties and no biases, alone in its batches.
func TestPenaltiesAlone(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024})
	req := greedy([]int32{1, 2, 3}, 30)
	free := generateOne(t, l, req).TokenIDs
	req.Params.PresencePenalty, req.Params.FrequencyPenalty = 2, 2
	got := generateOne(t, l, req).TokenIDs
	if len(got) != 30 || got[0] != free[0] {
		t.Errorf("the first token is %d, without penalties %d", got[0], free[0])
	}
	if slices.Equal(got, free) {
		t.Error("penalties change nothing")
	}
}

func TestLogitBias(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024})
	req := greedy([]int32{1, 2, 3}, 8)
	free := generateOne(t, l, req).TokenIDs
	req.Params.LogitBias = []llm.TokenBias{{Token: 77, Bias: 100}}
	if got := generateOne(t, l, req).TokenIDs; !slices.Equal(got, slices.Repeat([]int32{77}, 8)) {
		t.Errorf("a bias of 100 for token 77 gives %v", got)
	}
	req.Params.LogitBias = nil
	for _, id := range free {
		req.Params.LogitBias = append(req.Params.LogitBias, llm.TokenBias{Token: id, Bias: -100})
	}
	for _, id := range generateOne(t, l, req).TokenIDs {
		if slices.Contains(free, id) {
			t.Errorf("token %d came in spite of a bias of -100", id)
		}
	}
}

// TestMinTokens: an end that is as good as certain is held back.
func TestMinTokens(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024})
	eos, _ := l.Tokenizer().EOS()
	req := greedy([]int32{1, 2, 3}, 20)
	req.Params.IgnoreEOS = false
	req.Params.LogitBias = []llm.TokenBias{{Token: eos, Bias: 100}}
	for _, least := range []int{0, 1, 7} {
		req.Params.MinTokens = least
		out := generateOne(t, l, req)
		if len(out.TokenIDs) != least || out.Finish != llm.FinishStop {
			t.Errorf("min_tokens %d: %d tokens, finish %q", least, len(out.TokenIDs), out.Finish)
		}
	}
	req.Params.LogitBias[0].Token = 9
	req.StopTokenIDs = []int32{9}
	req.Params.MinTokens = 5
	events := eventsOf(t, l, req)
	if last := events[len(events)-1]; last.Usage.CompletionTokens != 5 || last.Finish != llm.FinishStop {
		t.Errorf("with a stop token: %+v", last)
	}
}

// TestSamplingLimits: what only the model's vocabulary or the prompt can tell.
func TestSamplingLimits(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 256})
	for field, change := range map[string]func(*llm.SamplingParams){
		"sampling_params[0].logit_bias":      func(p *llm.SamplingParams) { p.LogitBias = []llm.TokenBias{{Token: 1 << 20}} },
		"sampling_params[0].prompt_logprobs": func(p *llm.SamplingParams) { p.Logprobs, p.PromptLogprobs = true, new(3) },
		"sampling_params[0].top_logprobs":    func(p *llm.SamplingParams) { p.Logprobs, p.TopLogprobs = true, 21 },
		"sampling_params[0].min_tokens":      func(p *llm.SamplingParams) { p.MinTokens = 99 },
	} {
		req := greedy([]int32{1, 2, 3}, 4)
		change(&req.Params)
		_, err := l.Generate(t.Context(), []llm.Request{req}, nil)
		var invalid *llm.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

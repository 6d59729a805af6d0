package llm_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// repetitive is a workload whose answers repeat their prompts and themselves, so
// that guesses are right often and wrong often: greedy and sampled requests, and
// all that a request may ask for.
func repetitive(n int) []llm.Request {
	rng := rand.New(rand.NewPCG(3, 4))
	reqs := workload(n)
	for i := range reqs {
		pattern := make([]int32, 1+rng.IntN(5))
		for k := range pattern {
			pattern[k] = int32(rng.IntN(250))
		}
		for range 1 + rng.IntN(6) {
			reqs[i].TokenIDs = append(reqs[i].TokenIDs, pattern...)
		}
		reqs[i].TokenIDs = reqs[i].TokenIDs[max(0, len(reqs[i].TokenIDs)-56):] // the smallest pool has 90 pages
		p := &reqs[i].Params
		p.MaxTokens = 1 + rng.IntN(32)
		if p.Temperature > 0 && i%2 == 0 {
			p.Temperature = 0.05
		}
		for _, id := range pattern {
			p.LogitBias = append(p.LogitBias, llm.TokenBias{Token: id, Bias: 20})
		}
		switch i % 6 {
		case 2:
			p.MinTokens = min(4, p.MaxTokens)
		case 3:
			p.Logprobs = true
		case 4:
			p.FrequencyPenalty = 0.3
		case 5:
			p.Grammar = grammars[i/6%len(grammars)]
		}
	}
	return reqs
}

// TestMetamorphicSpeculation: guesses change no token, greedy or sampled, under
// any combination of scheduling options; and no page is lost.
func TestMetamorphicSpeculation(t *testing.T) {
	for _, dev := range []string{"cpu", "ref"} {
		t.Run(dev, func(t *testing.T) {
			reqs := repetitive(24)
			base := llm.Config{Model: tinyModel, Device: dev, DType: "bfloat16", NumPageOverride: 4096, MaxSeqLenOverride: 128}
			all := append(policies(base), variants(base)...)
			step := 2
			if dev == "ref" {
				reqs, step = reqs[:12], 9
			}
			want := tokens(t, open(t, base), reqs)
			var drafted, accepted int64
			for i := 0; i < len(all); i += step {
				cfg := all[i]
				cfg.SpeculativeAlgorithm, cfg.SpeculativeDraftTokens = llm.NGram, []int{1, 3, 8}[i%3]
				cfg.SpeculateAlways = true
				l := open(t, cfg)
				if diff := cmp.Diff(want, tokens(t, l, reqs)); diff != "" {
					t.Errorf("%+v: tokens differ (-base +got):\n%s", cfg, diff)
				}
				waitIdle(t, l)
				s := l.Stats()
				if err := l.CheckIntegrity(); err != nil || s.FreePages+s.EvictablePages != s.TotalPages {
					t.Errorf("%+v: at the end %d free and %d evictable pages of %d: %v", cfg, s.FreePages, s.EvictablePages, s.TotalPages, err)
				}
				drafted, accepted = drafted+s.DraftTokens, accepted+s.AcceptedTokens
			}
			if accepted < drafted/10 || accepted > drafted*9/10 {
				t.Errorf("%d of %d guesses were right, which tests too little", accepted, drafted)
			}
		})
	}
}

// TestSpeculationChooses runs with the costs that were measured, which decide what
// is guessed and must not change a token.
func TestSpeculationChooses(t *testing.T) {
	reqs := repetitive(24)
	base := llm.Config{Model: tinyModel, Device: "cpu", DType: "bfloat16", NumPageOverride: 4096, MaxSeqLenOverride: 128, MaxRunningReq: 2}
	want := tokens(t, open(t, base), reqs)
	base.SpeculativeAlgorithm = "NGRAM"
	if diff := cmp.Diff(want, tokens(t, open(t, base), reqs)); diff != "" {
		t.Errorf("tokens differ (-base +got):\n%s", diff)
	}
}

// TestSpeculationAbort aborts requests while their guesses are being verified:
// every page is free again, and the others' tokens are right.
func TestSpeculationAbort(t *testing.T) {
	reqs := repetitive(16)
	base := llm.Config{Model: tinyModel, Device: "cpu", DType: "bfloat16", NumPageOverride: 512, MaxSeqLenOverride: 128, PageSize: 4}
	want := tokens(t, open(t, base), reqs)
	base.SpeculativeAlgorithm = llm.NGram
	base.SpeculateAlways = true
	l := open(t, base)
	streams := make([]*llm.Stream, len(reqs))
	for i, req := range reqs {
		var err error
		if streams[i], err = l.Stream(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range streams {
		var got []int32
		for ev, err := s.Next(t.Context()); err == nil; ev, err = s.Next(t.Context()) {
			if ev.HasToken {
				got = append(got, ev.Token)
			}
			if i%2 == 0 && len(got) == 3 {
				s.Close()
				break
			}
		}
		if i%2 == 1 {
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Errorf("request %d: tokens differ (-base +got):\n%s", i, diff)
			}
		}
		s.Close()
	}
	waitIdle(t, l)
	if err := l.CheckIntegrity(); err != nil {
		t.Error(err)
	}
	if s := l.Stats(); s.FreePages+s.EvictablePages != s.TotalPages {
		t.Errorf("at the end %d free and %d evictable pages of %d", s.FreePages, s.EvictablePages, s.TotalPages)
	}
}

// TestSpeculationDistribution draws tokens of a vocabulary of 50 in batches with
// guesses, and compares how often each comes with its probability: Pearson's
// chi-square at a significance of 1 in 1000. The prompt is one token over and over,
// which is also what is guessed, and likely enough to be drawn that positions
// behind right guesses are reached often.
func TestSpeculationDistribution(t *testing.T) {
	const vocabulary, guessed, draws, length = 50, 5, 20000, 4
	cfg := llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 8192, MaxSeqLenOverride: 64, MaxRunningReq: 4, SpeculativeAlgorithm: llm.NGram}
	cfg.SpeculateAlways = true
	l := open(t, cfg)
	p := llm.DefaultSampling()
	p.Temperature, p.MaxTokens, p.IgnoreEOS = 6, length, true
	bias := make([]float64, vocabulary)
	for id := range l.Info().VocabSize {
		switch {
		case id >= vocabulary:
			p.LogitBias = append(p.LogitBias, llm.TokenBias{Token: int32(id), Bias: -100})
		case id == guessed:
			bias[id] = 25
			p.LogitBias = append(p.LogitBias, llm.TokenBias{Token: int32(id), Bias: bias[id]})
		}
	}
	prompt := slices.Repeat([]int32{guessed}, 6)
	reqs := make([]llm.Request, draws)
	for i := range reqs {
		reqs[i] = llm.Request{TokenIDs: prompt, Params: p}
	}
	counts := make([][]float64, length)
	for i := range counts {
		counts[i] = make([]float64, vocabulary)
	}
	for _, ids := range tokens(t, l, reqs) {
		for i, id := range ids {
			counts[i][id]++
			if id != guessed {
				break // what follows is drawn after another text
			}
		}
	}
	if s := l.Stats(); s.AcceptedTokens < draws/4 {
		t.Errorf("only %d of %d guesses were right", s.AcceptedTokens, s.DraftTokens)
	}
	for i, have := range counts {
		text := slices.Repeat([]int32{guessed}, len(prompt)+i)
		chi, freedom := chiSquare(have, probabilities(t, l, text, bias, p.Temperature))
		if freedom < 20 || chi > chiSquareBound(freedom) {
			t.Errorf("token %d: chi-square is %.1f with %d degrees of freedom, more than %.1f; drawn: %v",
				i, chi, freedom, chiSquareBound(freedom), have)
		}
	}
}

// probabilities are those of the tokens that may follow a text, from the
// log-probabilities that the model gives each of them in a prompt.
func probabilities(t *testing.T, l *llm.LLM, text []int32, bias []float64, temperature float64) []float64 {
	t.Helper()
	p := llm.DefaultSampling()
	p.MaxTokens, p.Logprobs, p.PromptLogprobs = 1, true, new(len(text)-1)
	reqs := make([]llm.Request, len(bias))
	for id := range reqs {
		reqs[id] = llm.Request{TokenIDs: append(slices.Clone(text), int32(id)), Params: p}
	}
	outs, err := l.Generate(t.Context(), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, sum := make([]float64, len(bias)), 0.0
	for id, o := range outs {
		list[id] = math.Exp((float64(o.PromptLogprobs[0].Logprob) + bias[id]) / temperature)
		sum += list[id]
	}
	for id := range list {
		list[id] /= sum
	}
	return list
}

// chiSquare is Pearson's statistic; tokens that are expected less than 5 times are
// counted together.
func chiSquare(counts, probabilities []float64) (chi float64, freedom int) {
	total := 0.0
	for _, n := range counts {
		total += n
	}
	var seldom, seldomWant float64
	add := func(have, want float64) {
		chi += (have - want) * (have - want) / want
		freedom++
	}
	for id, n := range counts {
		if want := total * probabilities[id]; want >= 5 {
			add(n, want)
		} else {
			seldom, seldomWant = seldom+n, seldomWant+want
		}
	}
	if seldomWant > 0 {
		add(seldom, seldomWant)
	}
	return chi, freedom - 1
}

// chiSquareBound is what chi-square exceeds once in 1000 times (Wilson and
// Hilferty's approximation, 1931).
func chiSquareBound(freedom int) float64 {
	const z = 3.0902
	v := 2 / (9 * float64(freedom))
	return float64(freedom) * math.Pow(1-v+z*math.Sqrt(v), 3)
}

// TestSpeculationOptions: what can't be is refused by field.
func TestSpeculationOptions(t *testing.T) {
	for _, test := range []struct {
		algorithm string
		tokens    int
		field     string
	}{
		{"eagle", 0, "speculative_algorithm"},
		{"", 4, "speculative_num_draft_tokens"},
		{"ngram", -1, "speculative_num_draft_tokens"},
		{"ngram", 65, "speculative_num_draft_tokens"},
	} {
		_, err := llm.New(t.Context(), llm.Config{Model: tinyModel, SpeculativeAlgorithm: test.algorithm, SpeculativeDraftTokens: test.tokens})
		var invalid *llm.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%q, %d: %v, want an error about %s", test.algorithm, test.tokens, err, test.field)
		}
	}
}

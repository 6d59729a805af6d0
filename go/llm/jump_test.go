package llm_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/minisgl/minisgl/go/llm"
)

// forcing are grammars that leave a choice here and there and force what stands
// between, some up to the end.
var forcing = []llm.Grammar{
	{Kind: llm.GrammarJSONSchema, Text: `{"type":"object","properties":{"first_of_the_long_keys":{"type":"boolean"},"second_of_the_long_keys":{"enum":["red","green"]},
		"third":{"type":"object","properties":{"inner_key":{"const":"a text that has to be said"}},"required":["inner_key"],"additionalProperties":false}},
		"required":["first_of_the_long_keys","second_of_the_long_keys","third"],"additionalProperties":false}`},
	{Kind: llm.GrammarRegex, Text: `(yes|no), since the answer is (7|42)!`},
	{Kind: llm.GrammarEBNF, Text: "root ::= item item* \"the very end of the list\"\nitem ::= \"<item number=\" [0-9] \">\" [a-c]* \"</item>, \""},
	{Kind: llm.GrammarRegex, Text: `always the same text, é and 日本 in it`},
}

// forced gives requests such grammars, and cuts every third one somewhere in it.
func forced(reqs []llm.Request) []llm.Request {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		reqs[i].TokenIDs = reqs[i].TokenIDs[:min(len(reqs[i].TokenIDs), 26)] // the smallest pool has 90 pages
		p := &reqs[i].Params
		p.Grammar, p.MinTokens = forcing[i%len(forcing)], 0
		p.MaxTokens = 60
		if i%3 == 1 {
			p.MaxTokens = 1 + i*7%40
		}
		p.Logprobs = i%7 == 6
	}
	return reqs
}

// outputs runs requests together.
func outputs(t *testing.T, l *llm.LLM, reqs []llm.Request) []llm.Output {
	t.Helper()
	outs, err := l.Generate(t.Context(), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return outs
}

// sameOutputs compares all but times, and what the prefix cache had, which depends on
// the order of the batches.
var sameOutputs = cmp.Options{cmpopts.IgnoreFields(llm.Output{}, "TTFT", "E2E"), cmpopts.IgnoreFields(llm.Usage{}, "CachedTokens")}

// TestMetamorphicJumpForward: outputs are equal whether forced tokens are sampled or
// appended, greedy and sampled, with penalties, log-probabilities and limits, under any
// combination of scheduling options; and no page is lost.
func TestMetamorphicJumpForward(t *testing.T) {
	for _, dev := range []string{"cpu", "ref"} {
		t.Run(dev, func(t *testing.T) {
			reqs := append(forced(penalised(workload(24))), repetitive(6)...)
			base := llm.Config{Model: tinyModel, Device: dev, DType: "bfloat16", NumPageOverride: 4096, MaxSeqLenOverride: 128}
			all := append(policies(base), variants(base)...)
			step := 5
			if dev == "ref" {
				reqs, step = reqs[:12], 11
			}
			base.DisableJumpForward = true
			want := outputs(t, open(t, base), reqs)
			for i := 0; i < len(all); i += step {
				cfg := all[i]
				if i%2 == 1 {
					cfg.SpeculativeAlgorithm, cfg.SpeculateAlways = llm.NGram, true
				}
				l := open(t, cfg)
				if diff := cmp.Diff(want, outputs(t, l, reqs), sameOutputs); diff != "" {
					t.Errorf("%+v: outputs differ (-sampled +jumped):\n%s", cfg, diff)
				}
				waitIdle(t, l)
				s := l.Stats()
				if err := l.CheckIntegrity(); err != nil || s.FreePages+s.EvictablePages != s.TotalPages {
					t.Errorf("%+v: at the end %d free and %d evictable pages of %d: %v", cfg, s.FreePages, s.EvictablePages, s.TotalPages, err)
				}
				if given := given(want); s.CompletionTokens != given || s.JumpedTokens < given/4 {
					t.Errorf("%+v: %d of %d tokens were forced, %d were given", cfg, s.JumpedTokens, s.CompletionTokens, given)
				}
			}
		})
	}
}

// given is the number of tokens of outputs.
func given(outs []llm.Output) int64 {
	n := 0
	for _, o := range outs {
		n += len(o.TokenIDs)
	}
	return int64(n)
}

// TestJumpForwardUnderPreemption: what is put back within a forced run goes on rightly.
func TestJumpForwardUnderPreemption(t *testing.T) {
	equalUnderPreemption(t, func(reqs []llm.Request) []llm.Request {
		for i := range reqs {
			reqs[i].Params.Grammar = forcing[i%2*2] // the long ones
		}
		return reqs
	})
}

// TestJumpForwardSavesSteps: a text that is forced as a whole takes one step behind
// its first token, with DisableJumpForward one for each token and one for the end.
func TestJumpForwardSavesSteps(t *testing.T) {
	req := greedy([]int32{1, 2, 3}, 60)
	req.Params.Grammar = forcing[3]
	for _, disabled := range []bool{false, true} {
		l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024, DisableOverlap: true, DisableJumpForward: disabled})
		out := generateOne(t, l, req)
		if out.Finish != llm.FinishStop || out.Text != forcing[3].Text {
			t.Fatalf("%q, %s", out.Text, out.Finish)
		}
		waitIdle(t, l)
		want := int64(0) // the first token brings all others and the end
		if disabled {
			want = int64(len(out.TokenIDs))
		}
		if s := l.Stats(); s.PrefillBatches != 1 || s.DecodeSteps != want {
			t.Errorf("disabled %v: %d tokens took %d steps, want %d", disabled, len(out.TokenIDs), s.DecodeSteps, want)
		}
	}
}

// TestJumpForwardStreams: a stream has the same events in the same order, also where a
// stop string or a stop token lies in what is forced.
func TestJumpForwardStreams(t *testing.T) {
	base := llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 2048, DisableJumpForward: true}
	plain := open(t, base)
	base.DisableJumpForward = false
	jumping := open(t, base)
	reqs := forced(workload(16))
	reqs[0].Stop = []string{"long_keys\": "}
	reqs[4].Stop = []string{"nowhere", "t_of"}
	reqs[3].Stop = []string{"本 i"}
	reqs[5].Stop = []string{"since"}
	reqs[7].StopTokenIDs = generateOne(t, plain, reqs[7]).TokenIDs[9:10]
	for i, req := range reqs {
		req.Params.Seed = new(uint64(i))
		want, got := eventsOf(t, plain, req), eventsOf(t, jumping, req)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(llm.Event{}, "Begun"), cmpopts.IgnoreFields(llm.Usage{}, "CachedTokens")); diff != "" {
			t.Errorf("request %d: events differ (-sampled +jumped):\n%s", i, diff)
		}
		if last := got[len(got)-1]; len(req.Stop) > 0 && last.Stop == "" {
			t.Errorf("request %d never came to its stop string: %+v", i, last)
		}
	}
}

package llm_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/llm"
)

const personSchema = `{"type":"object","properties":{"name":{"type":"string","maxLength":6},"age":{"type":"integer","minimum":0,"maximum":150},
	"tags":{"type":"array","items":{"enum":["red","green"]},"maxItems":3}},"required":["name","age","tags"],"additionalProperties":false}`

// grammars are of every kind; the zero value is no grammar.
var grammars = []llm.Grammar{
	{Kind: llm.GrammarJSONSchema, Text: personSchema},
	{},
	{Kind: llm.GrammarRegex, Text: `[a-f]{3,9}(-[0-9]{2}){1,4}`},
	{Kind: llm.GrammarEBNF, Text: "root ::= \"(\" root \")\" | [0-9]+"},
	{Kind: llm.GrammarJSONObject},
	{Kind: llm.GrammarStructural, Text: `{"triggers":["<f"],"structures":[{"begin":"<f=a>","schema":{"type":"boolean"},"end":"</f>"}]}`},
}

// constrained gives requests grammars, some of them none.
func constrained(reqs []llm.Request) []llm.Request {
	for i := range reqs {
		reqs[i].Params.Grammar = grammars[i%len(grammars)]
	}
	return reqs
}

// TestGrammarMetamorphic: with grammars, whose masks depend on the tokens before,
// tokens are equal under every scheduling option, too.
func TestGrammarMetamorphic(t *testing.T) {
	for _, dev := range []string{"cpu", "ref"} {
		reqs := constrained(penalised(workload(12)))
		if dev == "ref" {
			reqs = reqs[:6]
		}
		for i := range reqs {
			reqs[i].Params.MinTokens = 0
		}
		base := llm.Config{Model: tinyModel, Device: dev, DType: "bfloat16", NumPageOverride: 4096, MaxSeqLenOverride: 128}
		want := tokens(t, open(t, base), reqs)
		equalUnderPolicies(t, base, reqs, want)
	}
}

// TestGrammarUnderPreemption: a request that is put back and computed again goes
// on in its grammar.
func TestGrammarUnderPreemption(t *testing.T) {
	equalUnderPreemption(t, constrained)
}

// TestRandomOutputsFollowGrammars draws 1,000 outputs of a model with random
// weights at temperature 1. Those that end are what their grammar says, and the
// others begin such a text.
func TestRandomOutputsFollowGrammars(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DummyWeight: true, DType: "float32", NumPageOverride: 8192})
	rng := rand.New(rand.NewPCG(3, 4))
	reqs := make([]llm.Request, 1000)
	for i := range reqs {
		p := llm.DefaultSampling()
		p.Temperature, p.MaxTokens, p.Grammar = 1, 60, grammars[i%len(grammars)]
		if p.Grammar.Kind == "" {
			p.Grammar = llm.Grammar{Kind: llm.GrammarRegex, Text: `"[a-z ]*"`}
		}
		reqs[i] = llm.Request{TokenIDs: []int32{int32(rng.IntN(250)), int32(rng.IntN(250))}, Params: p}
	}
	outs, err := l.Generate(t.Context(), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := map[llm.GrammarKind]int{}
	for i, o := range outs {
		g := reqs[i].Params.Grammar
		if o.Finish == llm.FinishStop {
			ended[g.Kind]++
		}
		if !follows(g, o.Text, o.Finish == llm.FinishStop) {
			t.Errorf("%s, %s: %q", g.Kind, o.Finish, o.Text)
		}
	}
	if ended[llm.GrammarJSONSchema] == 0 || ended[llm.GrammarRegex] == 0 || ended[llm.GrammarEBNF] == 0 {
		t.Errorf("outputs that came to an end: %v", ended)
	}
}

// follows checks a text in ways of its own, as far as it can: one that ended, or
// the beginning of one.
func follows(g llm.Grammar, text string, ended bool) bool {
	switch g.Kind {
	case llm.GrammarJSONSchema, llm.GrammarJSONObject:
		if ended {
			return json.Valid([]byte(text))
		}
		return strings.HasPrefix(text, "{")
	case llm.GrammarRegex:
		if ended {
			return regexp.MustCompile(`^(?:` + g.Text + `)$`).MatchString(text)
		}
		return regexp.MustCompile(`^"?[a-z0-9 -]*"?$`).MatchString(text)
	case llm.GrammarEBNF:
		open := strings.Count(text, "(")
		if ended {
			return regexp.MustCompile(`^\(*[0-9]+\)*$`).MatchString(text) && open == strings.Count(text, ")")
		}
		return regexp.MustCompile(`^\(*[0-9]*\)*$`).MatchString(text) && open >= strings.Count(text, ")")
	}
	_, tag, begun := strings.Cut(text, "<f")
	return !begun || regexp.MustCompile(`^(=(a(>(t(r(u(e.*)?)?)?|f(a(l(s(e.*)?)?)?)?)?)?)?)?$`).MatchString(strings.ReplaceAll(tag, "\n", " "))
}

// TestGrammarEnds: where nothing more may follow the request ends, whatever
// ignore_eos says; the end is no token of the output.
func TestGrammarEnds(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024})
	for _, ignore := range []bool{false, true} {
		req := greedy([]int32{1, 2, 3}, 40)
		req.Params.IgnoreEOS = ignore
		req.Params.Grammar = llm.Grammar{Kind: llm.GrammarRegex, Text: "(yes|no)!"}
		if out := generateOne(t, l, req); out.Finish != llm.FinishStop || out.Text != "yes!" && out.Text != "no!" {
			t.Errorf("ignore_eos %v: %q, %s", ignore, out.Text, out.Finish)
		}
	}
}

// TestGrammarLogprobs: log-probabilities are those among the tokens that the
// grammar allows.
func TestGrammarLogprobs(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024})
	req := greedy([]int32{1, 2, 3}, 1)
	req.Params.Grammar = llm.Grammar{Kind: llm.GrammarRegex, Text: "[ab]x"}
	req.Params.Logprobs, req.Params.TopLogprobs = true, 2
	top := generateOne(t, l, req).Logprobs[0].Top
	if sum := math.Exp(float64(top[0].Logprob)) + math.Exp(float64(top[1].Logprob)); sum < 0.9999 || sum > 1.0001 {
		t.Errorf("the two tokens have together a probability of %v", sum)
	}
}

func TestGrammarErrors(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 256})
	for field, change := range map[string]func(*llm.SamplingParams){
		"sampling_params[1].regex":      func(p *llm.SamplingParams) { p.Grammar = llm.Grammar{Kind: llm.GrammarRegex, Text: "("} },
		"sampling_params[1].there":      func(p *llm.SamplingParams) { p.Grammar = llm.Grammar{Kind: llm.GrammarEBNF, Field: "there"} },
		"sampling_params[1].grammar":    func(p *llm.SamplingParams) { p.Grammar.Kind = "poem" },
		"sampling_params[1].min_tokens": func(p *llm.SamplingParams) { p.Grammar, p.MinTokens = grammars[0], 1 },
	} {
		good, bad := greedy([]int32{1, 2, 3}, 4), greedy([]int32{1, 2, 3}, 4)
		good.Params.Grammar = grammars[0]
		change(&bad.Params)
		_, err := l.Generate(t.Context(), []llm.Request{good, bad}, nil)
		var invalid *llm.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

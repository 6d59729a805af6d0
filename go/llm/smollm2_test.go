package llm_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// tie is the gap between the reference's two largest logits below which either
// token is right.
const tie = 1e-3

// TestSmolLM2 compares greedy continuations with transformers on the same file,
// in float32 (scripts/golden/smollm2.py).
func TestSmolLM2(t *testing.T) {
	text, err := os.ReadFile("testdata/smollm2.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name      string
		Prompt    string
		PromptIDs []int32 `json:"prompt_ids"`
		Tokens    []int32
		Gaps      []float64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	l := open(t, llm.Config{Model: "smollm2-135m", DType: "float32", NumPageOverride: 8192})
	reqs := make([]llm.Request, len(cases))
	for i, c := range cases {
		ids, err := l.Tokenizer().Encode(c.Prompt, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.PromptIDs, ids); diff != "" {
			t.Errorf("%s: prompt ids (-transformers +ours):\n%s", c.Name, diff)
		}
		p := llm.DefaultSampling()
		p.MaxTokens, p.IgnoreEOS = len(c.Tokens), true
		reqs[i] = llm.Request{TokenIDs: c.PromptIDs, Params: p}
	}
	for i, got := range tokens(t, l, reqs) {
		c := cases[i]
		for step, want := range c.Tokens {
			if got[step] == want {
				continue
			}
			if c.Gaps[step] >= tie {
				t.Errorf("%s: step %d is %d, transformers has %d with a gap of %v", c.Name, step, got[step], want, c.Gaps[step])
			}
			break
		}
	}
}

// TestSmolLM2Chat asks in bfloat16 what a reader can check.
func TestSmolLM2Chat(t *testing.T) {
	l := open(t, llm.Config{Model: "smollm2-135m", NumPageOverride: 2048})
	ids, err := l.EncodeChat([]tokenizer.Message{{Role: "user", Content: "What is the capital of France?"}},
		tokenizer.TemplateOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	p := llm.DefaultSampling()
	p.MaxTokens = 32
	outs, err := l.Generate(context.Background(), []llm.Request{{TokenIDs: ids, Params: p}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(outs[0].Text, "Paris") || outs[0].Finish != llm.FinishStop {
		t.Errorf("the answer is %q (%s)", outs[0].Text, outs[0].Finish)
	}
}

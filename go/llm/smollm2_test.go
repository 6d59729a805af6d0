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

// TestSmolLM2Chat asks what a reader can check. In float32, since its answer hangs on little: the
// first token is 0.08 ahead of the next in log-probability, and rounding activations to 8 bits
// moves that by as much.
func TestSmolLM2Chat(t *testing.T) {
	l := open(t, llm.Config{Model: "smollm2-135m", NumPageOverride: 2048, DType: "float32"})
	ids, err := l.EncodeChat([]tokenizer.Message{{Role: "user", Content: "What is the capital of France?"}},
		tokenizer.TemplateOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	if out := answer(t, l, llm.Request{TokenIDs: ids}, 32); !strings.Contains(out.Text, "Paris") || out.Finish != llm.FinishStop {
		t.Errorf("the answer is %q (%s)", out.Text, out.Finish)
	}
}

// TestSmolLM2Completes does so with the file's own type, 4-bit weights.
func TestSmolLM2Completes(t *testing.T) {
	l := open(t, llm.Config{Model: "smollm2-135m", NumPageOverride: 2048})
	for prompt, want := range map[string]string{"The capital of France is": " Paris", "The opposite of hot is": " cold"} {
		if out := answer(t, l, llm.Request{Text: prompt}, 4); !strings.HasPrefix(out.Text, want) {
			t.Errorf("%q goes on with %q, want %q", prompt, out.Text, want)
		}
	}
}

func answer(t *testing.T, l *llm.LLM, r llm.Request, most int) llm.Output {
	t.Helper()
	r.Params = llm.DefaultSampling()
	r.Params.MaxTokens = most
	outs, err := l.Generate(context.Background(), []llm.Request{r}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return outs[0]
}

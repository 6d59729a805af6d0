package llm_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/llm"
)

// TestConverted runs converted models against what transformers computed with the
// original (scripts/golden/tiny_models.py): where its best token leads by more than
// a bound, which is twice what a logit may move, the best token is the same. The
// logits of these models have a standard deviation of about 3. Of all tokens, a
// quarter are the same, where 1 in 264 would be by chance.
func TestConverted(t *testing.T) {
	for _, name := range []string{"llama-tied", "qwen2-tied", "phi3", "gemma3-tied", "mistral3", "qwen3moe-some-layers"} {
		for quantization, bound := range map[string]float32{llm.Int8: 0.8, llm.Int4: 5} {
			t.Run(name+"/"+quantization, func(t *testing.T) { checkConverted(t, name, quantization, bound) })
		}
	}
}

func checkConverted(t *testing.T, name, quantization string, bound float32) {
	model := filepath.Join("../internal/model/testdata/tiny", name)
	reqs, best, leads := nextTokens(t, model)
	output := filepath.Join(t.TempDir(), "converted")
	if err := llm.Convert(t.Context(), llm.Conversion{Model: model, Quantization: quantization, Output: output}, io.Discard); err != nil {
		t.Fatal(err)
	}
	l := open(t, llm.Config{Model: output, DType: "float32", NumPageOverride: 2048, MaxSeqLenOverride: 160})
	same := 0
	for i, got := range tokens(t, l, reqs) {
		if got[0] == best[i] {
			same++
		} else if leads[i] > bound {
			t.Errorf("after %v: token %d, want %d, which leads by %v", reqs[i].TokenIDs, got[0], best[i], leads[i])
		}
	}
	if 4*same < len(best) {
		t.Errorf("%d of %d tokens are the same", same, len(best))
	}
}

// nextTokens returns prompts, the token that is best after each, and by how much it
// leads the second in transformers' logits.
func nextTokens(t *testing.T, model string) (reqs []llm.Request, best []int32, leads []float32) {
	t.Helper()
	var expected struct {
		Prompts []struct {
			IDs, Greedy []int32
			Gaps        []float32
		}
	}
	text, err := os.ReadFile(filepath.Join(model, "expected.json"))
	if err == nil {
		err = json.Unmarshal(text, &expected)
	}
	if err != nil || len(expected.Prompts) == 0 {
		t.Fatalf("no prompts: %v", err)
	}
	params := llm.DefaultSampling()
	params.MaxTokens, params.IgnoreEOS = 1, true
	for _, p := range expected.Prompts {
		for step := range p.Greedy {
			reqs = append(reqs, llm.Request{TokenIDs: slices.Concat(p.IDs, p.Greedy[:step]), Params: params})
		}
		best, leads = append(best, p.Greedy...), append(leads, p.Gaps...)
	}
	return reqs, best, leads
}

func TestConvertRefused(t *testing.T) {
	unknown := t.TempDir()
	if err := os.WriteFile(filepath.Join(unknown, "config.json"), []byte(`{"architectures": ["GPT2LMHeadModel"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{
		unknown:                               "LlamaForCausalLM", // the list of those that are known
		filepath.Join(tinyModel, "f16.gguf"):  "a GGUF file has its tokenizer in another form",
		filepath.Join(unknown, "config.json"): "not a .gguf file",
	} {
		output := filepath.Join(t.TempDir(), "out")
		err := llm.Convert(t.Context(), llm.Conversion{Model: model, Quantization: llm.Int8, Output: output}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), model) {
			t.Errorf("%s: error %v, want one with %q", model, err, want)
		}
		if _, err := os.Lstat(output); err == nil {
			t.Errorf("%s: there is an output", model)
		}
	}
}

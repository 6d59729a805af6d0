package llm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// extended skips what takes minutes.
func extended(t *testing.T) {
	t.Helper()
	if os.Getenv("MINISGL_TEST_MODELS") == "" {
		t.Skip("takes minutes: make test-models runs it (MINISGL_TEST_MODELS=1)")
	}
}

// tinyModels are the directories of all tiny models.
func tinyModels(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../internal/model/testdata/tiny/*/expected.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tiny models: %v", err)
	}
	for i, file := range files {
		files[i] = filepath.Dir(file)
	}
	return files
}

// TestExtended_Metamorphic is TestMetamorphic for every architecture and kind of
// rotary embedding.
func TestExtended_Metamorphic(t *testing.T) {
	extended(t)
	for _, dir := range tinyModels(t) {
		for _, dtype := range []string{"float32", "bfloat16"} {
			t.Run(filepath.Base(dir)+"/"+dtype, func(t *testing.T) {
				reqs := workload(12)
				base := llm.Config{Model: dir, Device: "cpu", DType: dtype, NumPageOverride: 4096, MaxSeqLenOverride: 128}
				want := tokens(t, open(t, base), reqs)
				for _, cfg := range append(variants(base), policies(base)...) {
					if cfg.TPSize > 1 && strings.HasPrefix(filepath.Base(dir), "llama-untied") {
						continue // three heads can't be split over two ranks
					}
					if diff := cmp.Diff(want, tokens(t, open(t, cfg), reqs)); diff != "" {
						t.Errorf("%+v: tokens differ (-base +got):\n%s", cfg, diff)
					}
				}
			})
		}
	}
}

// TestExtended_Generate compares greedy tokens with transformers through the whole
// engine: all prompts of a model at once, then again from the prefix cache.
func TestExtended_Generate(t *testing.T) {
	extended(t)
	for _, dir := range tinyModels(t) {
		if filepath.Base(dir) == "llama-untied-mha" {
			continue // transformers draws ids for which its tokenizer has no token
		}
		var want struct {
			MaxSeqLen int `json:"max_seq_len"`
			Prompts   []struct {
				IDs, Greedy []int32
				Gaps        []float64
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
		if err == nil {
			err = json.Unmarshal(text, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{"", "f16.gguf"} {
			path := filepath.Join(dir, form)
			if _, err := os.Stat(path); err != nil {
				continue // not every model has every form
			}
			t.Run(filepath.Base(dir)+"/"+form, func(t *testing.T) {
				l := open(t, llm.Config{Model: path, DType: "float32", NumPageOverride: 1024, MaxSeqLenOverride: max(128, want.MaxSeqLen)})
				var reqs []llm.Request
				for _, p := range want.Prompts {
					reqs = append(reqs, greedy(p.IDs, len(p.Greedy)))
				}
				for range 2 {
					for i, got := range tokens(t, l, reqs) {
						p := want.Prompts[i]
						for step, token := range p.Greedy {
							if got[step] != token && p.Gaps[step] > 1e-3 {
								t.Fatalf("prompt %d, step %d: token %d, transformers has %d with a gap of %v", i, step, got[step], token, p.Gaps[step])
							}
							if got[step] != token {
								break // a tie, after which the texts differ
							}
						}
					}
				}
			})
		}
	}
}

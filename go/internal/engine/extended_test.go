package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/weights"
)

// extended skips what takes minutes.
func extended(t *testing.T) {
	t.Helper()
	if os.Getenv("MINISGL_TEST_MODELS") == "" {
		t.Skip("takes minutes: make test-models runs it (MINISGL_TEST_MODELS=1)")
	}
}

// TestExtended_Logits compares every form of every tiny model with transformers:
// on both devices, for pages of many sizes, with prompts in chunks of many sizes,
// and all 64 greedy tokens.
func TestExtended_Logits(t *testing.T) {
	extended(t)
	for _, path := range allForms(t) {
		want := readExpected(t, expectedOf(path))
		for name, dev := range devices(t) {
			t.Run(fmt.Sprintf("%s/%s", strings.TrimPrefix(path, tiny+"/"), name), func(t *testing.T) {
				ck, err := weights.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer ck.Close()
				for i, pageSize := range []int{1, 4, 16, 64} {
					r := newSoloOf(t, ck.Config, ck, Config{Quantization: Dequantized, MaxSeqLen: want.MaxSeqLen, PageSize: pageSize}, dev)
					chunk := []int{64, 1, 7, 16}[i]
					for _, p := range want.Prompts {
						r.start(p.IDs)
						for end := chunk; end < len(p.IDs); end += chunk {
							r.logits(end)
						}
						near(t, fmt.Sprintf("pages of %d, chunks of %d: last position", pageSize, chunk), p.Last, r.logits(len(p.IDs)), 1e-4)
						for step, token := range p.Greedy {
							if got := r.step(); got != token && p.Gaps[step] > 1e-3 {
								t.Fatalf("pages of %d, step %d: token %d, transformers has %d with a gap of %v", pageSize, step, got, token, p.Gaps[step])
							}
						}
					}
				}
			})
		}
	}
}

// allForms are the directories and files of all tiny models.
func allForms(t *testing.T) []string {
	forms := glob(t, "*/*.gguf")
	for _, file := range glob(t, "*/expected.json") {
		forms = append(forms, filepath.Dir(file))
	}
	forms = append(forms, glob(t, "*/sharded")...)
	forms = append(forms, glob(t, "*/fused")...)
	slices.Sort(forms)
	return forms
}

// expectedOf is where transformers' results for a form are.
func expectedOf(path string) string {
	name := filepath.Base(path)
	switch {
	case strings.HasPrefix(name, "q") && strings.HasSuffix(name, ".gguf"):
		return strings.TrimSuffix(path, ".gguf") + ".json"
	case strings.HasSuffix(name, ".gguf") || name == "sharded" || name == "fused":
		return filepath.Join(filepath.Dir(path), "expected.json")
	}
	return filepath.Join(path, "expected.json")
}

package model

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/*.ops")

// TestOpList holds each architecture's forward pass as text.
func TestOpList(t *testing.T) {
	for _, name := range []string{
		"llama-tied", "llama-headdim32", "qwen2-window", "qwen3-tied", "qwen3moe-every-layer", "qwen3moe-some-layers",
		"mistral-window", "mistral3", "ministral3", "phi3", "gemma3-tied",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata/tiny", name, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			c, err := ParseConfig(text)
			if err != nil {
				t.Fatal(err)
			}
			got, err := OpList(c)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".ops")
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("operations (-want +got; run with -rewrite to accept):\n%s", diff)
			}
		})
	}
}

package llm_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// TestMetamorphicMoE: a token's experts are computed in groups that depend on the
// batch, and its result must not. Every fifth combination of the options of
// TestMetamorphic has each of their values.
func TestMetamorphicMoE(t *testing.T) {
	for _, name := range []string{"qwen3moe-every-layer", "qwen3moe-some-layers"} {
		for _, dtype := range []string{"float32", "bfloat16"} {
			t.Run(name+"/"+dtype, func(t *testing.T) {
				reqs := workload(12)
				base := llm.Config{
					Model: "../internal/model/testdata/tiny/" + name, Device: "cpu", DType: dtype,
					NumPageOverride: 4096, MaxSeqLenOverride: 128,
				}
				want := tokens(t, open(t, base), reqs)
				for i, cfg := range append(variants(base), policies(base)...) {
					if i%5 != 0 && cfg.TPSize < 2 {
						continue
					}
					if diff := cmp.Diff(want, tokens(t, open(t, cfg), reqs)); diff != "" {
						t.Errorf("%+v: tokens differ (-base +got):\n%s", cfg, diff)
					}
				}
			})
		}
	}
}

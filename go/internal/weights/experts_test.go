package weights

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tinyMoE = "qwen3moe-every-layer"

func TestExpertsOfBothFormsAgree(t *testing.T) {
	dir := filepath.Join(tiny, tinyMoE)
	compareTensors(t, openTest(t, dir), openTest(t, filepath.Join(dir, "f16.gguf")))
}

func TestExpertConfigFromMetadata(t *testing.T) {
	dir := filepath.Join(tiny, tinyMoE)
	var want, got map[string]any
	decode(t, openTest(t, dir).Config, &want)
	decode(t, openTest(t, filepath.Join(dir, "f16.gguf")).Config, &got)
	for from, to := range map[string]string{
		"architectures": "architectures", "model_type": "model_type", "num_local_experts": "num_experts",
		"num_experts_per_tok": "num_experts_per_tok", "moe_intermediate_size": "moe_intermediate_size",
		"norm_topk_prob": "norm_topk_prob", "head_dim": "head_dim", "intermediate_size": "intermediate_size",
	} {
		if diff := cmp.Diff(want[from], got[to]); diff != "" || got[to] == nil {
			t.Errorf("%s differs (-want +got):\n%s", to, diff)
		}
	}
}

// newMoE builds a smallest qwen3moe file: 3 experts of one layer, only their down projections.
func newMoE() *ggufBuilder {
	b := &ggufBuilder{version: 3, alignment: defaultAlignment}
	b.text("general.architecture", "qwen3moe")
	for key, n := range map[string]uint32{
		"block_count": 1, "embedding_length": 8, "feed_forward_length": 16, "context_length": 32, "attention.head_count": 2,
		"expert_used_count": 2, "expert_feed_forward_length": 4,
	} {
		b.uint("qwen3moe."+key, n)
	}
	b.float("qwen3moe.attention.layer_norm_rms_epsilon", 1e-5)
	b.tensor("token_embd.weight", ramp(24), 8, 3)
	return b
}

func TestExpertsSplit(t *testing.T) {
	for _, norm := range []string{"", "true", "false"} {
		b := newMoE()
		b.uint("qwen3moe.expert_count", 3)
		if norm != "" {
			b.pair("qwen3moe.expert_weights_norm", kindBool, []byte{byte(len("false") - len(norm))})
		}
		b.tensor("blk.0.ffn_down_exps.weight", ramp(3*8*4), 4, 8, 3)
		c := openTest(t, writeFile(t, t.TempDir(), "m.gguf", b.bytes()))
		down, ok := c.Tensor("model.layers.0.mlp.experts.2.down_proj.weight")
		if !ok || down.Rows() != 8 || down.Cols() != 4 || len(c.Names()) != 4 {
			t.Fatalf("tensors %v, expert 2 has shape %v", c.Names(), down.Shape())
		}
		row := make([]float32, 4)
		down.Row(row, 1)
		if diff := cmp.Diff([]float32{68, 69, 70, 71}, row); diff != "" {
			t.Errorf("expert 2, row 1 (-want +got):\n%s", diff)
		}
		if scaled := strings.Contains(string(c.Config), `"norm_topk_prob": true`); scaled != (norm != "false") {
			t.Errorf("expert_weights_norm %q: configuration %s", norm, c.Config)
		}
	}
}

func TestExpertsRefused(t *testing.T) {
	const down = "blk.0.ffn_down_exps.weight"
	for _, test := range []struct {
		name string
		edit func(*ggufBuilder)
		want string
	}{
		{"no number of experts", func(b *ggufBuilder) { b.tensor(down, ramp(96), 4, 8, 3) }, "lacks an integer qwen3moe.expert_count"},
		{"another number", func(b *ggufBuilder) {
			b.uint("qwen3moe.expert_count", 4)
			b.tensor(down, ramp(96), 4, 8, 3)
		}, "has shape [3 8 4], not one matrix for each of 4 experts"},
		{"one matrix", func(b *ggufBuilder) {
			b.uint("qwen3moe.expert_count", 3)
			b.tensor(down, ramp(32), 4, 8)
		}, "not one matrix for each of 3 experts"},
		{"too many", func(b *ggufBuilder) {
			b.uint("qwen3moe.expert_count", 1<<20)
			b.tensor(down, ramp(96), 4, 8, 3)
		}, "expert_count is 1048576, not 1 to 4096"},
		{"twice", func(b *ggufBuilder) {
			b.uint("qwen3moe.expert_count", 3)
			b.tensor(down, ramp(96), 4, 8, 3)
			b.tensor(down, ramp(96), 4, 8, 3)
		}, "stands twice"},
		{"experts of a dense model", func(b *ggufBuilder) {
			*b = *newLlama()
			b.uint("llama.expert_count", 3)
		}, "has 3 experts, which this architecture does not support"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newMoE()
			test.edit(b)
			_, err := Open(writeFile(t, t.TempDir(), "m.gguf", b.bytes()))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

package weights

import (
	"os"
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

// TestFusedExperts: transformers may save the experts of a layer as one tensor, with gate above up.
func TestFusedExperts(t *testing.T) {
	dir := filepath.Join(tiny, "qwen3moe-some-layers")
	fused := openTest(t, filepath.Join(dir, "fused"))
	compareTensors(t, openTest(t, dir), fused)
	header, err := os.ReadFile(filepath.Join(dir, "fused", singleFile))
	if err != nil || !strings.Contains(string(header), `"model.layers.3.mlp.experts.gate_up_proj"`) {
		t.Errorf("the file has no fused tensor: %v", err)
	}
}

func TestFusedExpertsRefused(t *testing.T) {
	const gate = "model.layers.0.mlp.experts.gate_up_proj"
	for _, test := range []struct {
		name, header string
		size         int
		want         string
	}{
		{"a matrix", tensorEntry(gate, "F32", "2,4", "0,32"), 32, "has shape [2 4], not one matrix for each of up to 4096 experts"},
		{"too many", tensorEntry(gate, "F32", "4097,2,1", "0,32776"), 32776, "not one matrix for each of up to 4096 experts"},
		{"odd rows", tensorEntry(gate, "F32", "1,3,2", "0,24"), 24, "3 rows are not those of a gate and an up projection"},
		{"apart, too", tensorEntry(gate, "F32", "1,2,2", "0,16") + "," + tensorEntry("model.layers.0.mlp.experts.0.up_proj.weight", "F32", "1,2", "16,24"), 24,
			`tensor "model.layers.0.mlp.experts.0.up_proj.weight" is a part of another one, too`},
		{"apart, before", tensorEntry("model.layers.0.mlp.experts.0.up_proj.weight", "F32", "1,2", "0,8") + "," + tensorEntry(gate, "F32", "1,2,2", "8,24"), 24,
			"stands twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, writeFiles(t, map[string][]byte{singleFile: safetensorsFile("{"+test.header+"}", test.size)}), singleFile, test.want)
		})
	}
}

// TestMergedExperts: llama.cpp's converter may merge gate and up.
func TestMergedExperts(t *testing.T) {
	b := newMoE()
	b.uint("qwen3moe.expert_count", 3)
	b.tensor("blk.0.ffn_gate_up_exps.weight", ramp(3*4*8), 8, 4, 3)
	c := openTest(t, writeFile(t, t.TempDir(), "m.gguf", b.bytes()))
	row := make([]float32, 8)
	for name, want := range map[string]float32{"gate_proj": 32, "up_proj": 48} { // of expert 1: values 32 to 63
		tensor := tensorOf(t, c, "model.layers.0.mlp.experts.1."+name+".weight")
		if tensor.Row(row, 0); tensor.Rows() != 2 || tensor.Cols() != 8 || row[0] != want {
			t.Errorf("%s has shape %v and begins with %v, want %v", name, tensor.Shape(), row[0], want)
		}
	}
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

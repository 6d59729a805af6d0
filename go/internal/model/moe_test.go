package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smallMoE = `{"architectures":["Qwen3MoeForCausalLM"],"vocab_size":32,"hidden_size":16,"intermediate_size":24,` +
	`"num_hidden_layers":6,"num_attention_heads":4,"moe_intermediate_size":8,"num_experts":4,"num_experts_per_tok":2`

func TestSparseLayers(t *testing.T) {
	for _, tt := range []struct {
		extra string
		want  []bool
	}{
		{``, []bool{true, true, true, true, true, true}},
		{`,"decoder_sparse_step":2`, []bool{false, true, false, true, false, true}},
		{`,"decoder_sparse_step":3`, []bool{false, false, true, false, false, true}},
		{`,"decoder_sparse_step":9`, make([]bool, 6)},
		{`,"mlp_only_layers":[0,4,77]`, []bool{false, true, true, true, false, true}},
		{`,"mlp_only_layers":[1,2],"decoder_sparse_step":2`, []bool{false, false, false, true, false, true}},
		{`,"mlp_only_layers":null`, []bool{true, true, true, true, true, true}},
		{`,"num_experts":0`, make([]bool, 6)},
	} {
		c, err := ParseConfig([]byte(smallMoE + tt.extra + "}"))
		if err != nil {
			t.Errorf("%s: %v", tt.extra, err)
			continue
		}
		var got []bool
		for i := range c.Layers {
			got = append(got, c.MoE.Sparse(i))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: sparse layers differ (-want +got):\n%s", tt.extra, diff)
		}
	}
}

func TestQwen3MoEConfig(t *testing.T) {
	const bare = `{"architectures":["Qwen3MoeForCausalLM"],"vocab_size":32,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,"num_attention_heads":4`
	for _, tt := range []struct {
		text string
		want MoE
	}{
		{bare, MoE{NumExperts: 128, NumExpertsPerTok: 8, IntermediateSize: 768, SparseStep: 1}}, // as transformers sets what is left out
		{bare + `,"num_local_experts":16`, MoE{NumExperts: 16, NumExpertsPerTok: 8, IntermediateSize: 768, SparseStep: 1}},
		{smallMoE + `,"norm_topk_prob":true`, MoE{NumExperts: 4, NumExpertsPerTok: 2, IntermediateSize: 8, NormTopKProb: true, SparseStep: 1}},
	} {
		c, err := ParseConfig([]byte(tt.text + "}"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, c.MoE); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.text, diff)
		}
	}
}

// TestQwen3MoEWindow: the window is every layer's, and only with use_sliding_window.
func TestQwen3MoEWindow(t *testing.T) {
	for _, tt := range []struct {
		extra string
		want  int
	}{
		{`,"sliding_window":7`, 0},
		{`,"sliding_window":7,"use_sliding_window":true,"max_window_layers":3`, 7},
		{`,"use_sliding_window":true`, 4096},
	} {
		c, err := ParseConfig([]byte(smallMoE + tt.extra + "}"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Layers {
			if got := c.window(i); got != tt.want {
				t.Errorf("%s: window of layer %d is %d, want %d", tt.extra, i, got, tt.want)
			}
		}
	}
}

func TestQwen3MoERefuses(t *testing.T) {
	for _, tt := range []struct{ extra, want string }{
		{`,"decoder_sparse_step":0`, "decoder_sparse_step is 0"},
		{`,"num_experts":-1`, "num_experts is -1"},
		{`,"num_experts":999999999`, "num_experts is 999999999"},
		{`,"num_experts_per_tok":0`, "num_experts_per_tok is 0"},
		{`,"num_experts_per_tok":5`, "num_experts_per_tok is 5"},
		{`,"moe_intermediate_size":0`, "moe_intermediate_size is 0"},
		{`,"moe_intermediate_size":99999999`, "moe_intermediate_size is 99999999"},
		{`,"hidden_act":"gelu_pytorch_tanh"`, "hidden_act"},
		{`,"mlp_bias":true`, "mlp_bias"},
		{`,"mlp_only_layers":"all"`, "mlp_only_layers"},
	} {
		if _, err := ParseConfig([]byte(smallMoE + tt.extra + "}")); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %s", tt.extra, err, tt.want)
		}
	}
}

// TestExpertParts: each expert's rows end at a multiple of 16.
func TestExpertParts(t *testing.T) {
	want := []Part{{Name: "a", Rows: 9}, {Name: "b", Rows: 9}, {Name: "", Rows: 14}}
	if diff := cmp.Diff(want, expertParts(Part{Name: "a", Rows: 9}, Part{Name: "b", Rows: 9})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := expertParts(Part{Name: "a", Rows: 32}); len(got) != 1 {
		t.Errorf("parts %v, want no zeros", got)
	}
}

package model

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// newQwen3MoE is Qwen3MoeForCausalLM: Qwen3 with a mixture of experts in some or
// all layers (Yang et al., 2025).
func newQwen3MoE(c Config, ld Loader) Model {
	return newDecoder(c, ld, layout{
		qkvBias: c.AttentionBias, outBias: c.AttentionBias, headNorms: true,
		feedForward: func(c Config, ld Loader, prefix string, layer int) feedForward {
			if c.MoE.Sparse(layer) {
				return newMoE(c, ld, prefix)
			}
			return newMLP(c, layout{}, ld, prefix)
		},
	})
}

func qwen3MoEDefaults(r *rawConfig) {
	heads, window := 4, 4096
	r.NumKVHeads, r.SlidingWindow, r.MaxPositions = &heads, &window, 32768
}

func readQwen3MoE(r *rawConfig, c *Config) error {
	if err := r.refuse(c, "mlp_bias", "layer_types"); err != nil {
		return err
	}
	if c.Activation != ops.SiLU {
		return fmt.Errorf("config.json: hidden_act %q is not supported by %s; only silu is", r.HiddenAct, c.Architecture)
	}
	own := struct {
		UseWindow        bool  `json:"use_sliding_window"`
		NumExperts       *int  `json:"num_experts"`
		NumLocalExperts  int   `json:"num_local_experts"` // what transformers 5 writes
		NumExpertsPerTok int   `json:"num_experts_per_tok"`
		IntermediateSize int   `json:"moe_intermediate_size"`
		NormTopKProb     bool  `json:"norm_topk_prob"`
		SparseStep       int   `json:"decoder_sparse_step"`
		DenseLayers      []int `json:"mlp_only_layers"`
	}{NumLocalExperts: 128, NumExpertsPerTok: 8, IntermediateSize: 768, SparseStep: 1}
	if err := r.decode(&own); err != nil {
		return err
	}
	if own.NumExperts == nil {
		own.NumExperts = &own.NumLocalExperts
	}
	c.MoE = MoE{
		NumExperts: *own.NumExperts, NumExpertsPerTok: own.NumExpertsPerTok, IntermediateSize: own.IntermediateSize,
		NormTopKProb: own.NormTopKProb, SparseStep: own.SparseStep, DenseLayers: own.DenseLayers,
	}
	if err := c.MoE.check(c.HiddenSize); err != nil {
		return err
	}
	// The window is every layer's or none's.
	r.LayerTypes = nil
	if !own.UseWindow {
		r.SlidingWindow = nil
	}
	var err error
	c.Windows, err = r.windows(c, func(int) bool { return r.SlidingWindow != nil })
	return err
}

package weights

import "fmt"

// readPhi3 reads Phi 3's sliding window, 0 being none.
func readPhi3(s *settings, c *config) error {
	window, ok := s.metadata.Int(s.prefix + "attention.sliding_window")
	if ok && window != 0 {
		c.SlidingWindow = &window
	}
	return nil
}

// readMistral3 reads how queries grow with their position, which goes with YaRN.
func readMistral3(s *settings, c *config) error {
	beta, err := s.float("attention.temperature_scale", 0)
	if err != nil {
		return err
	}
	if kind, _ := s.metadata.String(s.prefix + "rope.scaling.type"); beta != 0 && kind != "yarn" {
		return fmt.Errorf("metadata %sattention.temperature_scale is %v, but rope.scaling.type is %q, not yarn", s.prefix, beta, kind)
	}
	c.queryBeta = float32(beta)
	c.RopeScaling = map[string]any{"rope_type": "default"} // without any, the class has a scaling of its own
	return nil
}

// What llama.cpp takes for Gemma 3's settings that its files as a rule don't hold.
const (
	gemma3Pattern   = 6  // every sixth layer has no window
	gemma3Layers27B = 62 // the model whose queries are scaled by hidden_size / num_attention_heads and not by head_dim
)

// readGemma3 reads Gemma 3's settings. Rotary scaling is of the layers without a window, as in Hugging Face's
// rope_scaling.
func readGemma3(s *settings, c *config) (err error) {
	c.HiddenAct, c.HiddenActivation = "", "gelu_pytorch_tanh"
	c.QueryScalar = c.HeadDim
	if c.Layers == gemma3Layers27B {
		c.QueryScalar = c.HiddenSize / c.Heads
	}
	window, err := s.positive("attention.sliding_window")
	if err != nil {
		return err
	}
	c.SlidingWindow = &window
	if c.LayerTypes, err = s.layerTypes(c.Layers, gemma3Pattern); err != nil {
		return err
	}
	local, err := s.float("rope.freq_base_swa", 10000)
	if err != nil {
		return err
	}
	c.LocalTheta = float32(local)
	if x, err := s.float("final_logit_softcapping", 0); err != nil || x != 0 {
		return fmt.Errorf("metadata %sfinal_logit_softcapping %v is not supported", s.prefix, x)
	}
	return nil
}

// layerTypes says which layers have a window: the metadata has a flag for each layer, or n, every n-th layer being
// without.
func (s *settings) layerTypes(layers, pattern int) ([]string, error) {
	const key = "attention.sliding_window_pattern"
	flags, ok := s.metadata.Bools(s.prefix + key)
	if ok && len(flags) != layers {
		return nil, fmt.Errorf("metadata %s%s has %d values for %d layers", s.prefix, key, len(flags), layers)
	}
	if !ok {
		n, err := s.positiveOr(key, pattern)
		if err != nil {
			return nil, err
		}
		for layer := range layers {
			flags = append(flags, (layer+1)%n != 0)
		}
	}
	types := make([]string, layers)
	for layer, sliding := range flags {
		types[layer] = "full_attention"
		if sliding {
			types[layer] = "sliding_attention"
		}
	}
	return types, nil
}

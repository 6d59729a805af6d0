package model

// newLlama is LlamaForCausalLM: Llama 2 and 3, SmolLM2 and others of that shape
// (Touvron et al., 2023).
func newLlama(c Config, ld Loader) Model {
	return newDecoder(c, ld, layout{qkvBias: c.AttentionBias, outBias: c.AttentionBias, mlpBias: c.MLPBias})
}

func readLlama(r *rawConfig, c *Config) error { return r.refuse(c, "sliding_window", "layer_types") }

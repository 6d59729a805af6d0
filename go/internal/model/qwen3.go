package model

// newQwen3 is Qwen3ForCausalLM: Llama with queries and keys normalised per head
// (Yang et al., 2025).
func newQwen3(c Config, ld Loader) Model {
	return newDecoder(c, ld, layout{qkvBias: c.AttentionBias, outBias: c.AttentionBias, headNorms: true})
}

func qwen3Defaults(r *rawConfig) {
	qwen2Defaults(r)
	dim := 128
	r.HeadDim = &dim
}

func readQwen3(r *rawConfig, c *Config) error { return readQwen2(r, c) }

package model

// newLlama is LlamaForCausalLM: Llama 2 and 3, SmolLM2 and others of that shape
// (Touvron et al., 2023).
func newLlama(c Config, ld Loader) Model { return newDecoder(c, ld) }

package model

import "fmt"

// newMistral is MistralForCausalLM: Llama without biases, every layer behind a
// sliding window where the configuration has one (Jiang et al., 2023).
func newMistral(c Config, ld Loader) Model { return newDecoder(c, ld, layout{}) }

func mistralDefaults(r *rawConfig) {
	heads, window := 8, 4096
	r.NumKVHeads, r.SlidingWindow, r.MaxPositions = &heads, &window, 4096*32
}

func readMistral(r *rawConfig, c *Config) (err error) {
	if err := r.refuse(c, "attention_bias", "mlp_bias", "layer_types"); err != nil {
		return err
	}
	r.LayerTypes = nil // the window is every layer's or none's
	c.Windows, err = r.windows(c, func(int) bool { return r.SlidingWindow != nil })
	return err
}

// newMistral3 is the language model of Mistral3ForConditionalGeneration (Mistral
// Small 3.1 and later); images are not supported, and the vision tower's tensors
// stay unread. Older checkpoints name tensors language_model.model.…, those that
// transformers 5 writes model.language_model.….
func newMistral3(c Config, ld Loader) Model {
	lay := layout{base: "language_model.model.", head: "language_model.lm_head.weight"}
	if ld.Has("model.language_model.embed_tokens.weight") {
		lay = layout{base: "model.language_model."}
	}
	return newDecoder(c, ld, lay)
}

func readMistral3(r *rawConfig, c *Config) error {
	var own struct {
		ModelType string `json:"model_type"`
	}
	if err := r.decode(&own); err != nil {
		return err
	}
	if own.ModelType != "" && own.ModelType != "mistral" {
		return fmt.Errorf("config.json: text_config has model_type %q; %s is supported with mistral only", own.ModelType, c.Architecture)
	}
	return readMistral(r, c)
}

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

// newMinistral3 is Ministral3ForCausalLM (Mistral AI, 2025): Mistral with another
// rotary embedding, whose queries grow from the original context's end on.
func newMinistral3(c Config, ld Loader) Model { return newDecoder(c, ld, layout{}) }

func ministral3Defaults(r *rawConfig) {
	heads, dim := 8, 128
	r.NumKVHeads, r.HeadDim, r.MaxPositions, r.RMSNormEps = &heads, &dim, 262144, 1e-5
	r.scaledQueries = true
}

// readMinistral3 ends the context where queries begin to grow
// (llama_4_scaling_beta): up to there, their factor is 1.
func readMinistral3(r *rawConfig, c *Config) error {
	text := r.ropeText()
	if !present(text) {
		return fmt.Errorf("config.json: %s needs rope_parameters", c.Architecture)
	}
	rope, err := r.rope(text, r.RopeTheta)
	if err != nil {
		return err
	}
	c.Ropes = []Rope{rope}
	if rope.QueryBeta != 0 {
		c.PositionLimit = rope.Original
		c.MaxPositions = min(c.MaxPositions, rope.Original)
	}
	return readMistral(r, c)
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

// mistral3Defaults are those of the language model that text_config names.
func mistral3Defaults(r *rawConfig) {
	var file struct {
		Text struct {
			ModelType string `json:"model_type"`
		} `json:"text_config"`
	}
	if err := r.decode(&file); err == nil && file.Text.ModelType == "ministral3" {
		ministral3Defaults(r)
		return
	}
	mistralDefaults(r)
}

func readMistral3(r *rawConfig, c *Config) error {
	var own struct {
		ModelType string `json:"model_type"`
	}
	if err := r.decode(&own); err != nil {
		return err
	}
	switch own.ModelType {
	case "", "mistral":
		return readMistral(r, c)
	case "ministral3":
		return readMinistral3(r, c)
	}
	return fmt.Errorf("config.json: text_config has model_type %q; %s is supported with mistral and ministral3 only", own.ModelType, c.Architecture)
}

package model

// newQwen2 is Qwen2ForCausalLM: Qwen 2 and 2.5, Llama with biases of q, k and v
// (Yang et al., 2024).
func newQwen2(c Config, ld Loader) Model { return newDecoder(c, ld, layout{qkvBias: true}) }

func qwen2Defaults(r *rawConfig) {
	heads, window := 32, 4096
	r.NumKVHeads, r.SlidingWindow, r.MaxPositions = &heads, &window, 32768
}

func readQwen2(r *rawConfig, c *Config) error {
	if err := r.refuse(c, "mlp_bias"); err != nil {
		return err
	}
	return r.readQwenWindow(c)
}

// readQwenWindow reads the sliding window of the Qwen families: it counts only
// with use_sliding_window, and from layer max_window_layers on.
func (r *rawConfig) readQwenWindow(c *Config) (err error) {
	own := struct {
		Use    bool `json:"use_sliding_window"`
		Layers int  `json:"max_window_layers"`
	}{Layers: 28}
	if err := r.decode(&own); err != nil {
		return err
	}
	if !own.Use {
		r.SlidingWindow = nil
	}
	c.Windows, err = r.windows(c, func(layer int) bool { return r.SlidingWindow != nil && layer >= own.Layers })
	return err
}

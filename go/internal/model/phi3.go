package model

// newPhi3 is Phi3ForCausalLM: Phi 3, 3.5 and 4 mini, Llama with q, k, v in one
// tensor and gate and up in another (Abdin et al., 2024); in Phi 4, only a part
// of each head rotates.
func newPhi3(c Config, ld Loader) Model { return newDecoder(c, ld, layout{fused: true}) }

func phi3Defaults(r *rawConfig) {
	original := 4096
	r.MaxPositions, r.OriginalMax, r.RMSNormEps = 4096, &original, 1e-5
	r.partialRotary = true
}

// readPhi3 also takes the old names of longrope, su and yarn, as transformers
// does.
func readPhi3(r *rawConfig, c *Config) (err error) {
	if err := r.refuse(c, "attention_bias", "mlp_bias", "layer_types"); err != nil {
		return err
	}
	r.LayerTypes = nil // the window is every layer's or none's
	if c.Windows, err = r.windows(c, func(int) bool { return r.SlidingWindow != nil }); err != nil {
		return err
	}
	rope, err := r.rope(r.ropeText(), r.RopeTheta, "su", ropeYarn)
	c.Ropes = []Rope{rope}
	return err
}

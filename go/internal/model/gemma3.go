package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// newGemma3 is Gemma3ForCausalLM (Gemma Team, 2025): norms on both sides of
// attention and MLP, each scaled by one plus its weight; queries and keys
// normalised per head; scaled embeddings; most layers behind a sliding window
// and with a rotary base of their own.
func newGemma3(c Config, ld Loader) Model {
	return newDecoder(c, ld, layout{
		qkvBias: c.AttentionBias, outBias: c.AttentionBias, headNorms: true, sandwich: true, normOffset: 1,
		embedScale: roundTo(math.Sqrt(float64(c.HiddenSize)), c.DType),
	})
}

// roundTo rounds to a checkpoint's type, to nearest even: transformers keeps the
// scale of the embeddings in the type of the weights, and so were the models
// trained.
func roundTo(x float64, dtype string) float32 {
	bits := map[string]int{"bfloat16": 8, "float16": 11}[dtype]
	if bits == 0 {
		return float32(x)
	}
	fraction, exponent := math.Frexp(x)
	return float32(math.Ldexp(math.RoundToEven(math.Ldexp(fraction, bits)), exponent-bits))
}

func gemma3Defaults(r *rawConfig) {
	heads, dim, window := 4, 256, 4096
	r.NumKVHeads, r.HeadDim, r.SlidingWindow = &heads, &dim, &window
	r.MaxPositions, r.TieEmbeddings, r.RopeTheta = 131072, true, 1e6
}

// gemma3Config holds the family's own settings.
type gemma3Config struct {
	Activation    string   `json:"hidden_activation"`
	QueryScalar   float64  `json:"query_pre_attn_scalar"`
	Pattern       int      `json:"sliding_window_pattern"`
	LocalTheta    float64  `json:"rope_local_base_freq"`
	FinalCap      *float64 `json:"final_logit_softcapping"`
	AttentionCap  *float64 `json:"attn_logit_softcapping"`
	Bidirectional bool     `json:"use_bidirectional_attention"`
}

func readGemma3(r *rawConfig, c *Config) (err error) {
	own := gemma3Config{Activation: "gelu_pytorch_tanh", QueryScalar: 256, Pattern: 6, LocalTheta: 10000}
	if err := r.decode(&own); err != nil {
		return err
	}
	if err := own.check(c); err != nil {
		return err
	}
	c.QueryScalar = own.QueryScalar
	if c.Activation, err = activation("hidden_activation", own.Activation); err != nil {
		return err
	}
	if c.Windows, err = r.windows(c, func(layer int) bool { return (layer+1)%own.Pattern != 0 }); err != nil {
		return err
	}
	return r.readGemma3Ropes(c, own.LocalTheta)
}

func (g gemma3Config) check(c *Config) error {
	switch {
	case g.FinalCap != nil:
		return fmt.Errorf("config.json: final_logit_softcapping %v is not supported by %s", *g.FinalCap, c.Architecture)
	case g.AttentionCap != nil:
		return fmt.Errorf("config.json: attn_logit_softcapping %v is not supported by %s", *g.AttentionCap, c.Architecture)
	case g.Bidirectional:
		return fmt.Errorf("config.json: use_bidirectional_attention is not supported by %s", c.Architecture)
	case !(g.QueryScalar > 0) || math.IsInf(g.QueryScalar, 1):
		return fmt.Errorf("config.json: query_pre_attn_scalar is %v; it must be positive", g.QueryScalar)
	case g.Pattern < 1:
		return fmt.Errorf("config.json: sliding_window_pattern is %d; it must be positive", g.Pattern)
	case c.MLPBias:
		return fmt.Errorf("config.json: mlp_bias is not supported by %s", c.Architecture)
	}
	return nil
}

// readGemma3Ropes reads the rotary embeddings of both kinds of layers:
// rope_parameters has an object for each; before transformers 5, rope_scaling
// and rope_theta are of the layers without a window, and rope_local_base_freq is
// of those with one.
func (r *rawConfig) readGemma3Ropes(c *Config, localTheta float64) error {
	var kinds struct {
		Full    json.RawMessage `json:"full_attention"`
		Sliding json.RawMessage `json:"sliding_attention"`
	}
	if present(r.RopeParameters) {
		d := json.NewDecoder(bytes.NewReader(r.RopeParameters))
		d.DisallowUnknownFields()
		if err := d.Decode(&kinds); err != nil {
			return fmt.Errorf("config.json: rope_parameters: %w", err)
		}
	}
	if present(r.RopeScaling) {
		kinds.Full = r.RopeScaling
	}
	full, err := r.rope(kinds.Full, r.RopeTheta)
	if err != nil {
		return err
	}
	local, err := r.rope(kinds.Sliding, localTheta)
	c.Ropes = []Rope{full, local}
	return err
}

package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Config is what a model's config.json says, as far as the architectures here
// need it. Names follow the file.
type Config struct {
	Architecture     string
	VocabSize        int
	HiddenSize       int
	IntermediateSize int
	Layers           int
	Heads            int
	KVHeads          int
	HeadDim          int
	MaxPositions     int
	RMSNormEps       float32
	RopeTheta        float64
	TieEmbeddings    bool
	AttentionBias    bool
	MLPBias          bool
	DType            string // the checkpoint's own type: "float32", "bfloat16", "float16"; "" if it does not say
	EOS              []int32
}

// rawConfig is the file. Fields that change the result and are not supported are
// read so that they can be refused.
type rawConfig struct {
	Architectures    []string        `json:"architectures"`
	VocabSize        int             `json:"vocab_size"`
	HiddenSize       int             `json:"hidden_size"`
	IntermediateSize int             `json:"intermediate_size"`
	NumHiddenLayers  int             `json:"num_hidden_layers"`
	NumHeads         int             `json:"num_attention_heads"`
	NumKVHeads       int             `json:"num_key_value_heads"`
	HeadDim          int             `json:"head_dim"`
	MaxPositions     int             `json:"max_position_embeddings"`
	RMSNormEps       float64         `json:"rms_norm_eps"`
	HiddenAct        string          `json:"hidden_act"`
	RopeTheta        float64         `json:"rope_theta"`
	RopeScaling      *ropeParameters `json:"rope_scaling"`
	RopeParameters   *ropeParameters `json:"rope_parameters"`
	TieEmbeddings    bool            `json:"tie_word_embeddings"`
	AttentionBias    bool            `json:"attention_bias"`
	MLPBias          bool            `json:"mlp_bias"`
	DType            string          `json:"dtype"`
	TorchDType       string          `json:"torch_dtype"`
	EOS              json.RawMessage `json:"eos_token_id"`
	Quantization     json.RawMessage `json:"quantization_config"`
	PartialRotary    *float64        `json:"partial_rotary_factor"`
	SlidingWindow    *int            `json:"sliding_window"`
}

// ropeParameters is rope_scaling, or rope_parameters as transformers 5 writes it.
type ropeParameters struct {
	RopeType  string  `json:"rope_type"`
	Type      string  `json:"type"`
	RopeTheta float64 `json:"rope_theta"`
}

// Sizes are bounded so that a damaged file can't ask for absurd memory.
const maxDim = 1 << 24

// ParseConfig reads the text of a config.json.
func ParseConfig(text []byte) (Config, error) {
	raw := rawConfig{HiddenAct: "silu", RMSNormEps: 1e-6, RopeTheta: 10000, MaxPositions: 2048}
	if err := json.Unmarshal(text, &raw); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	if len(raw.Architectures) != 1 {
		return Config{}, fmt.Errorf("config.json: architectures must name one architecture, got %q; known are %s", raw.Architectures, known())
	}
	c := Config{
		Architecture: raw.Architectures[0], VocabSize: raw.VocabSize, HiddenSize: raw.HiddenSize,
		IntermediateSize: raw.IntermediateSize, Layers: raw.NumHiddenLayers, Heads: raw.NumHeads,
		KVHeads: raw.NumKVHeads, HeadDim: raw.HeadDim, MaxPositions: raw.MaxPositions,
		RMSNormEps: float32(raw.RMSNormEps), TieEmbeddings: raw.TieEmbeddings,
		AttentionBias: raw.AttentionBias, MLPBias: raw.MLPBias, DType: raw.DType,
	}
	if c.DType == "" {
		c.DType = raw.TorchDType
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.HiddenSize / c.Heads
	}
	var err error
	if c.RopeTheta, err = raw.theta(); err != nil {
		return Config{}, err
	}
	if c.EOS, err = ParseEOS(raw.EOS); err != nil {
		return Config{}, err
	}
	if err := raw.checkSupported(); err != nil {
		return Config{}, err
	}
	return c, c.check()
}

// theta returns the base of the rotary embedding, wherever the file has it.
func (r rawConfig) theta() (float64, error) {
	theta := r.RopeTheta
	for _, p := range []*ropeParameters{r.RopeScaling, r.RopeParameters} {
		if p == nil {
			continue
		}
		if kind := p.RopeType + p.Type; !slices.Contains([]string{"", "default", "defaultdefault"}, kind) {
			return 0, fmt.Errorf("config.json: rope type %q is not supported; only the default rotary embedding is", kind)
		}
		if p.RopeTheta != 0 {
			theta = p.RopeTheta
		}
	}
	return theta, nil
}

// checkSupported refuses settings that would change the result.
func (r rawConfig) checkSupported() error {
	switch {
	case r.HiddenAct != "silu":
		return fmt.Errorf("config.json: hidden_act %q is not supported; only silu is", r.HiddenAct)
	case len(r.Quantization) > 0 && string(r.Quantization) != "null":
		return fmt.Errorf("config.json: quantization_config is not supported; use a bfloat16, float16 or float32 checkpoint, or a GGUF file")
	case r.PartialRotary != nil && *r.PartialRotary != 1:
		return fmt.Errorf("config.json: partial_rotary_factor %v is not supported; only 1 is", *r.PartialRotary)
	case r.SlidingWindow != nil:
		return fmt.Errorf("config.json: sliding_window %d is not supported by this architecture", *r.SlidingWindow)
	}
	return nil
}

func (c Config) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"intermediate_size", c.IntermediateSize},
		{"num_hidden_layers", c.Layers}, {"num_attention_heads", c.Heads}, {"num_key_value_heads", c.KVHeads},
		{"head_dim", c.HeadDim}, {"max_position_embeddings", c.MaxPositions},
	} {
		if f.value < 1 || f.value > maxDim {
			return fmt.Errorf("config.json: %s is %d; it must be 1 to %d", f.name, f.value, maxDim)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("config.json: num_attention_heads %d is not a multiple of num_key_value_heads %d", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("config.json: head_dim %d is odd; the rotary embedding needs pairs", c.HeadDim)
	case !(c.RMSNormEps >= 0):
		return fmt.Errorf("config.json: rms_norm_eps is %v; it must not be negative", c.RMSNormEps)
	case !(c.RopeTheta > 0):
		return fmt.Errorf("config.json: rope_theta is %v; it must be positive", c.RopeTheta)
	}
	return nil
}

// ParseEOS reads an eos_token_id: a number, a list of numbers, or nothing.
func ParseEOS(raw json.RawMessage) ([]int32, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one int32
	if err := json.Unmarshal(raw, &one); err == nil {
		return []int32{one}, nil
	}
	var list []int32
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("config: eos_token_id is %s; it must be a number or a list of numbers", raw)
	}
	return list, nil
}

func known() string {
	names := make([]string, 0, len(registry))
	for name := range registry {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

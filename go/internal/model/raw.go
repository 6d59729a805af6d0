package model

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// rawConfig is the file: what the families share. Fields that change the result
// and are not supported are read so that they can be refused.
type rawConfig struct {
	Architectures    []string        `json:"architectures"`
	VocabSize        int             `json:"vocab_size"`
	HiddenSize       int             `json:"hidden_size"`
	IntermediateSize int             `json:"intermediate_size"`
	NumHiddenLayers  int             `json:"num_hidden_layers"`
	NumHeads         int             `json:"num_attention_heads"`
	NumKVHeads       *int            `json:"num_key_value_heads"` // null: as many as num_attention_heads
	HeadDim          *int            `json:"head_dim"`            // null: hidden_size / num_attention_heads
	MaxPositions     int             `json:"max_position_embeddings"`
	OriginalMax      *int            `json:"original_max_position_embeddings"`
	RMSNormEps       float64         `json:"rms_norm_eps"`
	HiddenAct        string          `json:"hidden_act"`
	RopeTheta        float64         `json:"rope_theta"`
	RopeScaling      json.RawMessage `json:"rope_scaling"`
	RopeParameters   json.RawMessage `json:"rope_parameters"`
	TieEmbeddings    bool            `json:"tie_word_embeddings"`
	AttentionBias    bool            `json:"attention_bias"`
	MLPBias          bool            `json:"mlp_bias"`
	DType            string          `json:"dtype"`
	TorchDType       string          `json:"torch_dtype"`
	EOS              json.RawMessage `json:"eos_token_id"`
	Quantization     json.RawMessage `json:"quantization_config"`
	PartialRotary    *float64        `json:"partial_rotary_factor"`
	SlidingWindow    *int            `json:"sliding_window"`
	LayerTypes       []string        `json:"layer_types"`

	text          []byte // the whole file, for decode
	partialRotary bool   // the family lets a part of each head rotate, as partial_rotary_factor says
	scaledQueries bool   // the family knows llama_4_scaling_beta
}

// readConfig parses the file over the defaults of the family that it names.
func readConfig(text []byte) (*rawConfig, family, error) {
	var named struct {
		Architectures []string        `json:"architectures"`
		Text          json.RawMessage `json:"text_config"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return nil, family{}, fmt.Errorf("config.json: %w", err)
	}
	if len(named.Architectures) != 1 {
		return nil, family{}, fmt.Errorf("config.json: architectures must name one architecture, got %q; known are %s", named.Architectures, known())
	}
	fam, err := familyOf(named.Architectures[0])
	if err != nil {
		return nil, family{}, err
	}
	raw := &rawConfig{HiddenAct: "silu", RMSNormEps: 1e-6, RopeTheta: 10000, MaxPositions: 2048, text: text}
	if fam.defaults != nil {
		fam.defaults(raw)
	}
	if err := raw.decode(raw); err != nil {
		return nil, family{}, err
	}
	if fam.nested {
		if len(named.Text) == 0 {
			return nil, family{}, fmt.Errorf("config.json: %s has no text_config", named.Architectures[0])
		}
		raw.text = named.Text
		if err := raw.decode(raw); err != nil {
			return nil, family{}, err
		}
		raw.Architectures = named.Architectures
	}
	return raw, fam, nil
}

// decode reads the fields of into, those of a family's own as a rule.
func (r *rawConfig) decode(into any) error {
	if err := json.Unmarshal(r.text, into); err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	return nil
}

// readShared reads what has one meaning in every family, and refuses what none
// supports and would change the result.
func readShared(r *rawConfig, c *Config) (err error) {
	if err := checkQuantization(r.Quantization); err != nil {
		return err
	}
	c.Activation, err = activation("hidden_act", r.HiddenAct)
	return err
}

// checkQuantization lets pass what only changes how weights are stored: their reader
// knows it. See package weights.
func checkQuantization(field json.RawMessage) error {
	var q struct {
		Method string `json:"quant_method"`
	}
	if !present(field) {
		return nil
	}
	if err := json.Unmarshal(field, &q); err != nil || !slices.Contains([]string{"minisgl", "fp8", "compressed-tensors"}, q.Method) {
		return fmt.Errorf("config.json: quantization_config with quant_method %q is not supported; use a bfloat16, float16, float32 or fp8 checkpoint, "+
			"one that minisgl convert made, or a GGUF file", q.Method)
	}
	return nil
}

// activation finds an activation by the name that transformers gives it.
func activation(field, name string) (ops.Activation, error) {
	switch name {
	case "silu":
		return ops.SiLU, nil
	case "gelu_pytorch_tanh":
		return ops.GELUTanh, nil
	}
	return 0, fmt.Errorf("config.json: %s %q is not supported; only silu and gelu_pytorch_tanh are", field, name)
}

// refuse is an error when a setting is there that the family does not have.
func (r *rawConfig) refuse(c *Config, names ...string) error {
	set := map[string]bool{
		"attention_bias": r.AttentionBias,
		"mlp_bias":       r.MLPBias,
		"sliding_window": r.SlidingWindow != nil,
		"layer_types":    slices.ContainsFunc(r.LayerTypes, func(kind string) bool { return kind != fullAttention }),
	}
	for _, name := range names {
		if set[name] {
			return fmt.Errorf("config.json: %s is not supported by %s", name, c.Architecture)
		}
	}
	return nil
}

const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// windows returns each layer's window: sliding_window where layer_types says so
// or, without layer_types, slides does.
func (r *rawConfig) windows(c *Config, slides func(layer int) bool) ([]int, error) {
	if r.LayerTypes != nil && len(r.LayerTypes) != c.Layers {
		return nil, fmt.Errorf("config.json: layer_types has %d entries for %d layers", len(r.LayerTypes), c.Layers)
	}
	windows := make([]int, c.Layers)
	for i := range windows {
		kind := fullAttention
		if r.LayerTypes != nil {
			kind = r.LayerTypes[i]
		} else if slides(i) {
			kind = slidingAttention
		}
		switch {
		case kind == fullAttention:
		case kind != slidingAttention:
			return nil, fmt.Errorf("config.json: layer_types has %q; only %s and %s are supported", kind, fullAttention, slidingAttention)
		case r.SlidingWindow == nil:
			return nil, fmt.Errorf("config.json: layer %d is of %s, but there is no sliding_window", i, slidingAttention)
		default:
			windows[i] = *r.SlidingWindow
		}
	}
	if w := r.SlidingWindow; w != nil && (*w < 1 || *w > maxDim) {
		return nil, fmt.Errorf("config.json: sliding_window is %d; it must be 1 to %d", *w, maxDim)
	}
	return windows, nil
}

// present reports whether a field is there and not null.
func present(field json.RawMessage) bool { return len(field) > 0 && string(field) != "null" }

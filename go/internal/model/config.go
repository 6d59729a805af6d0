package model

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/minisgl/minisgl/go/internal/ops"
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
	PositionLimit    int // positions from which on a result would be wrong, because a setting is not supported there; 0: none
	RMSNormEps       float32
	Ropes            []Rope // [0] of the layers; [1], if there is one, of those with a window
	Windows          []int  // for each layer, the positions that a row sees, 0 all of them; nil: all in every layer
	QueryScalar      float64
	Activation       ops.Activation // of the feed-forward layers
	MoE              MoE            // of the layers that have experts; zero: none has
	TieEmbeddings    bool
	AttentionBias    bool
	MLPBias          bool
	Shard            Shard  // of a tensor-parallel group; not in the file
	DType            string // the checkpoint's own type: "float32", "bfloat16", "float16"; "" if it does not say
	EOS              []int32
}

// Sizes are bounded so that a damaged file can't ask for absurd memory.
const maxDim = 1 << 24

// ParseConfig reads the text of a config.json.
func ParseConfig(text []byte) (Config, error) {
	raw, family, err := readConfig(text)
	if err != nil {
		return Config{}, err
	}
	c := Config{
		Architecture: raw.Architectures[0], VocabSize: raw.VocabSize, HiddenSize: raw.HiddenSize,
		IntermediateSize: raw.IntermediateSize, Layers: raw.NumHiddenLayers, Heads: raw.NumHeads,
		KVHeads: raw.NumHeads, MaxPositions: raw.MaxPositions,
		RMSNormEps: float32(raw.RMSNormEps), TieEmbeddings: raw.TieEmbeddings,
		AttentionBias: raw.AttentionBias, MLPBias: raw.MLPBias, DType: raw.DType,
	}
	if c.DType == "" {
		c.DType = raw.TorchDType
	}
	if raw.NumKVHeads != nil {
		c.KVHeads = *raw.NumKVHeads
	}
	if raw.HeadDim != nil {
		c.HeadDim = *raw.HeadDim
	} else if c.Heads > 0 {
		c.HeadDim = c.HiddenSize / c.Heads
	}
	if c.EOS, err = ParseEOS(raw.EOS); err != nil {
		return Config{}, err
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	for _, read := range []func(*rawConfig, *Config) error{readShared, family.read} {
		if read == nil {
			continue
		}
		if err := read(raw, &c); err != nil {
			return Config{}, err
		}
	}
	if c.Ropes == nil {
		rope, err := raw.rope(raw.ropeText(), raw.RopeTheta)
		if err != nil {
			return Config{}, err
		}
		c.Ropes = []Rope{rope}
	}
	return c, nil
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
	}
	return nil
}

// CheckLength reports why sequences can't have n tokens.
func (c Config) CheckLength(n int) error {
	if c.PositionLimit > 0 && n > c.PositionLimit {
		return fmt.Errorf("model: sequences of %d tokens are too long: llama_4_scaling_beta, which scales queries from position %d on, is not supported; "+
			"set max_seq_len_override to at most that", n, c.PositionLimit)
	}
	return nil
}

// scoreScale is what attention scores are multiplied by.
func (c Config) scoreScale() float32 {
	scalar := c.QueryScalar
	if scalar == 0 {
		scalar = float64(c.HeadDim)
	}
	return float32(1 / math.Sqrt(scalar))
}

// window is the number of positions that a row of a layer sees; 0: all.
func (c Config) window(layer int) int {
	if c.Windows == nil {
		return 0
	}
	return c.Windows[layer]
}

// ropeOf is the index in Ropes of a layer's rotary embedding.
func (c Config) ropeOf(layer int) int {
	if c.window(layer) > 0 {
		return len(c.Ropes) - 1
	}
	return 0
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

package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// settings reads an architecture's hyperparameters from GGUF metadata.
type settings struct {
	metadata *Metadata
	prefix   string // of the architecture's keys, as "llama."
}

// maxSetting bounds every size in the metadata, so that products of two stay far from overflow.
const maxSetting = 1 << 30

func (s *settings) positive(key string) (int, error) {
	n, ok := s.metadata.Int(s.prefix + key)
	if !ok {
		return 0, fmt.Errorf("metadata lacks an integer %s%s", s.prefix, key)
	}
	if n < 1 || n > maxSetting {
		return 0, fmt.Errorf("metadata %s%s is %d, not 1 to %d", s.prefix, key, n, maxSetting)
	}
	return n, nil
}

// positiveOr is positive with a value for an absent key.
func (s *settings) positiveOr(key string, absent int) (int, error) {
	if !s.metadata.Has(s.prefix + key) {
		return absent, nil
	}
	return s.positive(key)
}

func (s *settings) float(key string, absent float64) (float64, error) {
	if !s.metadata.Has(s.prefix + key) {
		return absent, nil
	}
	x, ok := s.metadata.Float(s.prefix + key)
	if !ok || !(x > 0) {
		return 0, fmt.Errorf("metadata %s%s is %v, not a positive float", s.prefix, key, x)
	}
	return x, nil
}

// heads reads a number of heads: one for all layers, or an array in which all layers agree. Without its own number,
// the key/value side has as many as the query side.
func (s *settings) heads(key string) (int, error) {
	if !s.metadata.Has(s.prefix + key) {
		key = "attention.head_count"
	}
	perLayer, ok := s.metadata.Ints(s.prefix + key)
	if !ok {
		return s.positive(key)
	}
	if len(perLayer) == 0 || slices.Min(perLayer) != slices.Max(perLayer) {
		return 0, fmt.Errorf("metadata %s%s differs between layers, which is not supported", s.prefix, key)
	}
	if n := perLayer[0]; n >= 1 && n <= maxSetting {
		return n, nil
	}
	return 0, fmt.Errorf("metadata %s%s is %d, not 1 to %d", s.prefix, key, perLayer[0], maxSetting)
}

// readHeads reads the size of a head, which must be the same for keys and values, and how much of it rotates.
func (c *config) readHeads(s *settings, arch *architecture) (err error) {
	if c.HeadDim, err = s.positiveOr("attention.key_length", c.HiddenSize/c.Heads); err != nil {
		return err
	}
	values, err := s.positiveOr("attention.value_length", c.HeadDim)
	if err != nil {
		return err
	}
	if values != c.HeadDim {
		return fmt.Errorf("metadata %sattention.value_length is %d, but a head has %d values: not supported", s.prefix, values, c.HeadDim)
	}
	if c.rotaryDim, err = s.positiveOr("rope.dimension_count", c.HeadDim); err != nil || c.rotaryDim == c.HeadDim {
		return err
	}
	if !arch.partial || c.rotaryDim > c.HeadDim {
		return fmt.Errorf("metadata %srope.dimension_count is %d, but a head has %d values: not supported", s.prefix, c.rotaryDim, c.HeadDim)
	}
	c.PartialRotary = float64(c.rotaryDim) / float64(c.HeadDim)
	if int(c.PartialRotary*float64(c.HeadDim)) < c.rotaryDim { // the quotient was rounded down
		c.PartialRotary = math.Nextafter(c.PartialRotary, 1)
	}
	return nil
}

// checkUnsplit refuses one part of a model that was split over several files.
func (s *settings) checkUnsplit() error {
	if n, ok := s.metadata.Int("split.count"); ok && n > 1 {
		return fmt.Errorf("the model is split over %d files: merge them with `llama-gguf-split --merge`", n)
	}
	return nil
}

// config is the part of Hugging Face's config.json that GGUF metadata determines.
type config struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	VocabSize     int      `json:"vocab_size"`
	HiddenSize    int      `json:"hidden_size"`
	Layers        int      `json:"num_hidden_layers"`
	Heads         int      `json:"num_attention_heads"`
	KVHeads       int      `json:"num_key_value_heads"`
	HeadDim       int      `json:"head_dim"`
	Intermediate  int      `json:"intermediate_size"`
	MaxPositions  int      `json:"max_position_embeddings"`
	RMSNormEps    float32  `json:"rms_norm_eps"`
	RopeTheta     float32  `json:"rope_theta"`
	RopeScaling   any      `json:"rope_scaling"`
	HiddenAct     string   `json:"hidden_act,omitempty"`
	AttentionBias bool     `json:"attention_bias"`
	MLPBias       bool     `json:"mlp_bias"`
	Tied          bool     `json:"tie_word_embeddings"`
	DType         string   `json:"torch_dtype"`
	BOS           *int     `json:"bos_token_id"`
	EOS           any      `json:"eos_token_id"`

	// Some architectures' own.
	HiddenActivation string   `json:"hidden_activation,omitempty"`
	SlidingWindow    *int     `json:"sliding_window,omitempty"`
	LayerTypes       []string `json:"layer_types,omitempty"`
	QueryScalar      int      `json:"query_pre_attn_scalar,omitempty"`
	LocalTheta       float32  `json:"rope_local_base_freq,omitempty"`
	OriginalMax      int      `json:"original_max_position_embeddings,omitempty"`
	PartialRotary    float64  `json:"partial_rotary_factor,omitempty"`

	rotaryDim int     // values of a head that rotate
	queryBeta float32 // llama_4_scaling_beta, 0 for none

	expertConfig
}

// makeConfig writes a config.json from the metadata and the tensors that are present.
func makeConfig(s *settings, arch *architecture, tensors []stored) ([]byte, error) {
	byName := make(map[string]*stored, len(tensors))
	for i := range tensors {
		byName[tensors[i].name] = &tensors[i]
	}
	embedding := byName["token_embd.weight"]
	if embedding == nil || len(embedding.shape) != 2 {
		return nil, errors.New(`no two-dimensional tensor "token_embd.weight"`)
	}
	c := config{
		Architectures: []string{arch.class},
		ModelType:     arch.modelType,
		VocabSize:     embedding.shape[0],
		HiddenAct:     "silu",
		AttentionBias: byName["blk.0.attn_q.bias"] != nil,
		MLPBias:       byName["blk.0.ffn_up.bias"] != nil,
		Tied:          byName["output.weight"] == nil,
		DType:         dtype(tensors),
		EOS:           s.stops(),
	}
	if id, ok := s.metadata.Int("tokenizer.ggml.bos_token_id"); ok {
		c.BOS = &id
	}
	if err := errors.Join(c.readSizes(s, arch), c.readFloats(s), c.readExperts(s, arch)); err != nil {
		return nil, err
	}
	if c.HiddenSize != embedding.shape[1] {
		return nil, fmt.Errorf("tensor %q has shape %v, but %sembedding_length is %d",
			embedding.name, embedding.shape, s.prefix, c.HiddenSize)
	}
	if arch.own != nil {
		if err := arch.own(s, &c); err != nil {
			return nil, err
		}
	}
	scaling, err := s.ropeScaling(&c, byName)
	if err != nil {
		return nil, err
	}
	if scaling != nil {
		c.RopeScaling = scaling
	}
	return json.MarshalIndent(c, "", "  ")
}

func (c *config) readSizes(s *settings, arch *architecture) (err error) {
	if c.HiddenSize, err = s.positive("embedding_length"); err != nil {
		return err
	}
	if c.Layers, err = s.positive("block_count"); err != nil {
		return err
	}
	if c.Intermediate, err = s.positive("feed_forward_length"); err != nil {
		return err
	}
	if c.MaxPositions, err = s.positive("context_length"); err != nil {
		return err
	}
	if c.Heads, err = s.heads("attention.head_count"); err != nil {
		return err
	}
	if c.KVHeads, err = s.heads("attention.head_count_kv"); err != nil {
		return err
	}
	return c.readHeads(s, arch)
}

func (c *config) readFloats(s *settings) error {
	const epsilon = "attention.layer_norm_rms_epsilon"
	if !s.metadata.Has(s.prefix + epsilon) {
		return fmt.Errorf("metadata lacks a float %s%s", s.prefix, epsilon)
	}
	eps, err := s.float(epsilon, 0)
	if err != nil {
		return err
	}
	theta, err := s.float("rope.freq_base", 10000)
	c.RMSNormEps, c.RopeTheta = float32(eps), float32(theta)
	return err
}

// stops returns the end-of-sequence id, or a list when the model ends its turns with another token.
func (s *settings) stops() any {
	eos, ok := s.metadata.Int("tokenizer.ggml.eos_token_id")
	if !ok {
		return nil
	}
	if turn, ok := s.metadata.Int("tokenizer.ggml.eot_token_id"); ok && turn != eos {
		return []int{eos, turn}
	}
	return eos
}

// dtype names the type to compute in: that of the matrices, bfloat16 when they are quantized or mixed.
func dtype(tensors []stored) string {
	names := map[Type]string{F32: "float32", F16: "float16"}
	found := ""
	for i := range tensors {
		if len(tensors[i].shape) < 2 {
			continue
		}
		name, ok := names[tensors[i].kind]
		if !ok || found != "" && found != name {
			return "bfloat16"
		}
		found = name
	}
	return found
}

package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Rope is a rotary embedding (Su et al., 2021): which angles, and how they are
// scaled to reach beyond the positions that a model was trained on. Types and
// rules are those of transformers' ROPE_INIT_FUNCTIONS.
type Rope struct {
	Type            string // "default", "linear", "dynamic", "llama3", "yarn" or "longrope"
	Dim             int    // elements of a head that rotate, the first ones
	Theta           float64
	Factor          float64 // how much longer than trained; 1 for the default
	MaxPositions    int     // max_position_embeddings
	Original        int     // positions of the training (llama3, yarn, longrope)
	AttentionFactor float64 // of cosines and sines
	LowFreqFactor   float64 // llama3
	HighFreqFactor  float64
	BetaFast        float64 // yarn: rotations within Original, between which both frequencies blend
	BetaSlow        float64
	Truncate        bool      // yarn: the ends of the blend are whole dimensions
	ShortFactor     []float64 // longrope: divisors of the frequencies up to Original positions
	LongFactor      []float64 // beyond
	QueryBeta       float64   // how much queries are scaled up from Original positions on; 0: not
}

// Frequencies returns the Dim/2 inverse frequencies, radians a position, for
// sequences of up to length positions.
//
// The dynamic and longrope types depend on length. transformers looks at the
// sequence as it grows, which leaves keys in the cache that were rotated by other
// frequencies; here a server's longest sequence decides, once, for all of them,
// so a prefix may be shared and a result does not depend on what ran before. At
// a sequence of that length both agree.
func (r Rope) Frequencies(length int) []float32 {
	theta, dim := r.Theta, r.Dim
	if r.Type == ropeDynamic {
		stretch := r.Factor*float64(max(length, r.MaxPositions))/float64(r.MaxPositions) - (r.Factor - 1)
		theta *= math.Pow(stretch, float64(dim)/float64(dim-2))
	}
	out := make([]float32, dim/2)
	for i := range out {
		f := 1 / math.Pow(theta, float64(2*i)/float64(dim))
		switch r.Type {
		case ropeLinear:
			f /= r.Factor
		case ropeLlama3:
			f = r.llama3(f)
		case ropeYarn:
			f = r.yarn(f, i)
		case ropeLong:
			if length > r.Original {
				f /= r.LongFactor[i]
			} else {
				f /= r.ShortFactor[i]
			}
		}
		out[i] = float32(f)
	}
	return out
}

// llama3 keeps short wavelengths, stretches long ones, and blends between.
func (r Rope) llama3(f float64) float64 {
	wavelength, original := 2*math.Pi/f, float64(r.Original)
	switch {
	case wavelength > original/r.LowFreqFactor:
		return f / r.Factor
	case wavelength < original/r.HighFreqFactor:
		return f
	}
	smooth := (original/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
	return (1-smooth)*f/r.Factor + smooth*f
}

// yarn stretches frequency i by how often it turns within the trained positions
// (Peng et al., 2023): not beyond BetaFast rotations, whole below BetaSlow.
func (r Rope) yarn(f float64, i int) float64 {
	at := func(rotations float64) float64 {
		return float64(r.Dim) * math.Log(float64(r.Original)/(rotations*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high := at(r.BetaFast), at(r.BetaSlow)
	if r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dim-1))
	if low == high {
		high += 0.001
	}
	stretched := min(max((float64(i)-low)/(high-low), 0), 1)
	return f/r.Factor*stretched + f*(1-stretched)
}

const (
	ropeDefault = "default"
	ropeLinear  = "linear"
	ropeDynamic = "dynamic"
	ropeLlama3  = "llama3"
	ropeYarn    = "yarn"
	ropeLong    = "longrope"
)

// ropeSettings is rope_scaling, or rope_parameters as transformers 5 writes it.
// A key that is not here is an error: it might change the result.
type ropeSettings struct {
	RopeType        string    `json:"rope_type"`
	Type            string    `json:"type"`
	Theta           *float64  `json:"rope_theta"`
	Factor          *float64  `json:"factor"`
	Original        *int      `json:"original_max_position_embeddings"`
	AttentionFactor *float64  `json:"attention_factor"`
	LowFreqFactor   *float64  `json:"low_freq_factor"`
	HighFreqFactor  *float64  `json:"high_freq_factor"`
	BetaFast        float64   `json:"beta_fast"`
	BetaSlow        float64   `json:"beta_slow"`
	MScale          float64   `json:"mscale"`
	MScaleAllDim    float64   `json:"mscale_all_dim"`
	Truncate        *bool     `json:"truncate"`
	ShortFactor     []float64 `json:"short_factor"`
	LongFactor      []float64 `json:"long_factor"`
	PartialRotary   *float64  `json:"partial_rotary_factor"`
	QueryBeta       float64   `json:"llama_4_scaling_beta"`
	Finetuned       any       `json:"finetuned"`               // a note of some YaRN models, without effect
	MaxPositions    any       `json:"max_position_embeddings"` // likewise
}

// ropeText returns the settings under their old name or their new one, in
// transformers' order.
func (r *rawConfig) ropeText() json.RawMessage {
	if s := bytes.TrimSpace(r.RopeScaling); present(s) && string(s) != "{}" {
		return s
	}
	return r.RopeParameters
}

// rope reads rotary settings, text being the object or nothing; theta is the
// base where the object has none. Types in long are old names of longrope.
func (r *rawConfig) rope(text json.RawMessage, theta float64, long ...string) (Rope, error) {
	var s ropeSettings
	if present(text) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return Rope{}, fmt.Errorf("config.json: rope_scaling: %w", err)
		}
	}
	dim, err := r.rotaryDim(s)
	if err != nil {
		return Rope{}, err
	}
	if s.QueryBeta != 0 && !r.scaledQueries {
		return Rope{}, fmt.Errorf("config.json: llama_4_scaling_beta %v is not supported by %s", s.QueryBeta, r.Architectures[0])
	}
	rope := Rope{
		Type: s.kind(), Dim: dim, Theta: theta, Factor: 1, AttentionFactor: 1,
		MaxPositions: r.MaxPositions, Original: r.original(s), QueryBeta: s.QueryBeta,
	}
	if slices.Contains(long, rope.Type) {
		rope.Type = ropeLong
	}
	if s.Theta != nil {
		rope.Theta = *s.Theta
	}
	if !(rope.Theta > 1) || math.IsInf(rope.Theta, 1) {
		return Rope{}, fmt.Errorf("config.json: rope_theta is %v; it must be more than 1", rope.Theta)
	}
	return rope, s.fill(&rope)
}

func (s ropeSettings) kind() string {
	switch kind := s.RopeType; {
	case kind != "":
		return kind
	case s.Type != "":
		return s.Type
	}
	return ropeDefault
}

// original returns the positions of the training: the configuration's own field
// before that of the rotary settings, then max_position_embeddings.
func (r *rawConfig) original(s ropeSettings) int {
	for _, n := range []*int{r.OriginalMax, s.Original} {
		if n != nil {
			return *n
		}
	}
	return r.MaxPositions
}

// rotaryDim is how many elements of a head rotate.
func (r *rawConfig) rotaryDim(s ropeSettings) (int, error) {
	factor := cmp.Or(s.PartialRotary, r.PartialRotary)
	if factor == nil || *factor == 1 {
		return r.dim(), nil
	}
	if !r.partialRotary {
		return 0, fmt.Errorf("config.json: partial_rotary_factor %v is not supported by %s; only 1 is", *factor, r.Architectures[0])
	}
	dim := int(float64(r.dim()) * *factor)
	if !(*factor > 0 && *factor < 1) || dim < 2 || dim%2 != 0 {
		return 0, fmt.Errorf("config.json: partial_rotary_factor %v lets %d of %d elements of a head rotate; it must be an even number from 2", *factor, dim, r.dim())
	}
	return dim, nil
}

// dim is the elements of a head, as far as the file has them.
func (r *rawConfig) dim() int {
	if r.HeadDim != nil {
		return *r.HeadDim
	}
	return r.HiddenSize / max(r.NumHeads, 1)
}

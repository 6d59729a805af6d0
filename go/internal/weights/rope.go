package weights

import (
	"fmt"
	"math"
	"slices"
)

// ropeScaling returns Hugging Face's rope_scaling, nil when positions are not scaled. llama.cpp states linear and YaRN
// scaling in metadata, Llama 3's as a tensor of one divisor for each frequency, and longrope as two.
func (s *settings) ropeScaling(c *config, tensors map[string]*stored) (any, error) {
	kind, ok := s.metadata.String(s.prefix + "rope.scaling.type")
	if tensors[longFactors] != nil || tensors[shortFactors] != nil {
		return s.longScaling(c, tensors)
	}
	if factors := tensors[ropeFactors]; factors != nil {
		if ok && kind != "none" {
			return nil, fmt.Errorf("rope scaling %q together with tensor %q is not supported", kind, ropeFactors)
		}
		return factorScaling(c, factors)
	}
	if !ok {
		return s.linearScaling("rope.scale_linear")
	}
	switch kind {
	case "none":
		return nil, nil
	case "linear":
		return s.linearScaling("rope.scaling.factor")
	case "yarn":
		return s.yarnScaling(c)
	}
	return nil, fmt.Errorf("metadata %srope.scaling.type %q is not supported, only none, linear and yarn", s.prefix, kind)
}

func (s *settings) linearScaling(key string) (any, error) {
	factor, err := s.float(key, 1)
	if err != nil || factor == 1 {
		return nil, err
	}
	return map[string]any{"rope_type": "linear", "factor": float32(factor)}, nil
}

func (s *settings) yarnScaling(c *config) (any, error) {
	factor, err := s.float("rope.scaling.factor", 1)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"attn_factor", "yarn_attn_factor", "yarn_ext_factor"} {
		value, err := s.float("rope.scaling."+key, 1)
		if err != nil {
			return nil, err
		}
		if value != 1 {
			return nil, fmt.Errorf("metadata %srope.scaling.%s %v is not supported, only 1", s.prefix, key, value)
		}
	}
	original, err := s.positiveOr("rope.scaling.original_context_length", c.MaxPositions)
	if err != nil {
		return nil, err
	}
	scaling := map[string]any{
		"rope_type": "yarn", "factor": float32(factor), "original_max_position_embeddings": original,
	}
	for _, key := range []string{"beta_fast", "beta_slow"} {
		beta, err := s.float("rope.scaling.yarn_"+key, 0)
		if err != nil {
			return nil, err
		}
		if beta != 0 {
			scaling[key] = float32(beta)
		}
	}
	if c.queryBeta != 0 {
		scaling["llama_4_scaling_beta"] = c.queryBeta
	}
	logMultiplier, err := s.float("rope.scaling.yarn_log_multiplier", 0)
	if logMultiplier != 0 {
		scaling["mscale"], scaling["mscale_all_dim"] = 1, float32(logMultiplier)
	}
	return scaling, err
}

// longScaling reads longrope: two lists of divisors, and how far attention is scaled up.
func (s *settings) longScaling(c *config, tensors map[string]*stored) (any, error) {
	original, err := s.positive("rope.scaling.original_context_length")
	if err != nil {
		return nil, err
	}
	c.OriginalMax = original
	scaling := map[string]any{"rope_type": "longrope", "original_max_position_embeddings": original}
	for key, name := range map[string]string{"long_factor": longFactors, "short_factor": shortFactors} {
		if tensors[name] == nil {
			return nil, fmt.Errorf("no tensor %q, though its pair is there", name)
		}
		if scaling[key], err = divisors(c, tensors[name]); err != nil {
			return nil, err
		}
	}
	attention, err := s.float("rope.scaling.attn_factor", 0)
	if attention != 0 {
		scaling["attention_factor"] = float32(attention)
	}
	return scaling, err
}

// divisors decodes one divisor for each frequency.
func divisors(c *config, t *stored) ([]float32, error) {
	if len(t.shape) != 1 || t.kind != F32 || t.shape[0] != c.rotaryDim/2 {
		return nil, fmt.Errorf("tensor %q: shape %v of type %v, not [%d] of F32", t.name, t.shape, t.kind, c.rotaryDim/2)
	}
	factors := make([]float32, t.shape[0])
	decodeF32(factors, t.data)
	for i, factor := range factors {
		if !(factor > 0) || math.IsInf(float64(factor), 1) {
			return nil, fmt.Errorf("tensor %q: value %d is %v, not positive and finite", t.name, i, factor)
		}
	}
	return factors, nil
}

// Llama 3's settings of its scaling; the factor itself (8 in 3.1, 32 in 3.2) is the largest divisor.
const (
	llama3LowFreqFactor  = 1.0
	llama3HighFreqFactor = 4.0
	llama3Original       = 8192
)

// factorScaling recognizes Llama 3's scaling in a model's frequency divisors. Any other divisors are what Hugging Face
// calls longrope, with one list for all lengths and no scaling of attention.
func factorScaling(c *config, t *stored) (any, error) {
	factors, err := divisors(c, t)
	if err != nil {
		return nil, err
	}
	largest := max(1, slices.Max(factors))
	if isLlama3(factors, largest, c) {
		if largest == 1 {
			return nil, nil
		}
		return map[string]any{
			"rope_type": "llama3", "factor": largest, "low_freq_factor": llama3LowFreqFactor,
			"high_freq_factor": llama3HighFreqFactor, "original_max_position_embeddings": llama3Original,
		}, nil
	}
	return map[string]any{
		"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0,
		"original_max_position_embeddings": c.MaxPositions,
	}, nil
}

// isLlama3 compares divisors to Llama 3's formula: none for short wavelengths, the whole factor for long ones, and
// between them a blend of both frequencies.
func isLlama3(factors []float32, factor float32, c *config) bool {
	const tolerance = 1e-4
	for i, got := range factors {
		wavelength := 2 * math.Pi * math.Pow(float64(c.RopeTheta), 2*float64(i)/float64(c.rotaryDim))
		blend := (llama3Original/wavelength - llama3LowFreqFactor) / (llama3HighFreqFactor - llama3LowFreqFactor)
		blend = min(max(blend, 0), 1)
		want := 1 / ((1-blend)/float64(factor) + blend)
		if math.Abs(float64(got)-want) > tolerance*want {
			return false
		}
	}
	return true
}

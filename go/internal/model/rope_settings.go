package model

import (
	"fmt"
	"math"
)

// fill completes a rotary embedding with what its type needs, and refuses
// settings that the formulas can't take.
func (s ropeSettings) fill(r *Rope) error {
	if r.Original < 1 || r.Original > maxDim {
		return fmt.Errorf("config.json: original_max_position_embeddings is %d; it must be 1 to %d", r.Original, maxDim)
	}
	switch r.Type {
	case ropeDefault:
		return nil
	case ropeLinear, ropeDynamic:
		if r.Type == ropeDynamic && r.Dim <= 2 {
			return fmt.Errorf("config.json: rope type %q needs heads of more than 2 elements", r.Type)
		}
		return s.need(r.Type, "factor", s.Factor, &r.Factor)
	case ropeLlama3:
		return s.fillLlama3(r)
	case ropeYarn:
		return s.fillYarn(r)
	case ropeLong:
		return s.fillLong(r)
	}
	return fmt.Errorf("config.json: rope type %q is not supported; known are %s, %s, %s, %s, %s, %s", r.Type,
		ropeDefault, ropeLinear, ropeDynamic, ropeLlama3, ropeYarn, ropeLong)
}

// need stores a positive value that the type can't do without.
func (s ropeSettings) need(kind, name string, value, to *float64) error {
	if value == nil {
		return fmt.Errorf("config.json: rope type %q needs %s", kind, name)
	}
	if !(*value > 0) || math.IsInf(*value, 1) {
		return fmt.Errorf("config.json: %s of the rotary embedding is %v; it must be positive", name, *value)
	}
	*to = *value
	return nil
}

func (s ropeSettings) fillLlama3(r *Rope) error {
	for _, f := range []struct {
		name      string
		value, to *float64
	}{
		{"factor", s.Factor, &r.Factor}, {"low_freq_factor", s.LowFreqFactor, &r.LowFreqFactor},
		{"high_freq_factor", s.HighFreqFactor, &r.HighFreqFactor},
	} {
		if err := s.need(r.Type, f.name, f.value, f.to); err != nil {
			return err
		}
	}
	if r.HighFreqFactor <= r.LowFreqFactor {
		return fmt.Errorf("config.json: high_freq_factor %v is not above low_freq_factor %v", r.HighFreqFactor, r.LowFreqFactor)
	}
	return nil
}

// fillFactors sets the factor, by default how far max_position_embeddings is
// beyond the original, and attention's, by default what rule says.
func (s ropeSettings) fillFactors(r *Rope, rule func() float64) error {
	ratio := float64(r.MaxPositions) / float64(r.Original)
	factor := s.Factor
	if factor == nil {
		factor = &ratio
	}
	if err := s.need(r.Type, "factor", factor, &r.Factor); err != nil {
		return err
	}
	attention := s.AttentionFactor
	if attention == nil {
		value := rule()
		attention = &value
	}
	return s.need(r.Type, "attention_factor", attention, &r.AttentionFactor)
}

func (s ropeSettings) fillYarn(r *Rope) error {
	r.BetaFast, r.BetaSlow, r.Truncate = 32, 1, s.Truncate == nil || *s.Truncate
	for _, beta := range []struct{ value, to *float64 }{{&s.BetaFast, &r.BetaFast}, {&s.BetaSlow, &r.BetaSlow}} {
		if *beta.value != 0 {
			*beta.to = *beta.value
		}
	}
	if !(r.BetaSlow > 0) || !(r.BetaFast >= r.BetaSlow) {
		return fmt.Errorf("config.json: beta_fast %v and beta_slow %v of the rotary embedding must be positive and in this order", r.BetaFast, r.BetaSlow)
	}
	return s.fillFactors(r, func() float64 {
		mscale := func(weight float64) float64 {
			if r.Factor <= 1 {
				return 1
			}
			return 0.1*weight*math.Log(r.Factor) + 1
		}
		if s.MScale != 0 && s.MScaleAllDim != 0 {
			return mscale(s.MScale) / mscale(s.MScaleAllDim)
		}
		return mscale(1)
	})
}

func (s ropeSettings) fillLong(r *Rope) error {
	r.ShortFactor, r.LongFactor = s.ShortFactor, s.LongFactor
	for _, list := range []struct {
		name   string
		values []float64
	}{{"short_factor", s.ShortFactor}, {"long_factor", s.LongFactor}} {
		if len(list.values) != r.Dim/2 {
			return fmt.Errorf("config.json: %s has %d values for heads of which %d elements rotate; it must have %d", list.name, len(list.values), r.Dim, r.Dim/2)
		}
		for i, v := range list.values {
			if !(v > 0) || math.IsInf(v, 1) {
				return fmt.Errorf("config.json: value %d of %s is %v; it must be positive", i, list.name, v)
			}
		}
	}
	return s.fillFactors(r, func() float64 {
		if r.Factor <= 1 || r.Original < 2 {
			return 1
		}
		return math.Sqrt(1 + math.Log(r.Factor)/math.Log(float64(r.Original)))
	})
}

// Package core holds the data that the layers of the engine share: requests,
// batches, sampling parameters. It has no behaviour to speak of and imports
// nothing of the project.
package core

import (
	"fmt"
	"math"
)

// SamplingParams says how a request's tokens are chosen and when it ends. The
// zero value is not valid; start from DefaultSampling.
type SamplingParams struct {
	Temperature float64 // 0: greedy; else logits are divided by it
	TopK        int     // keep the k likeliest tokens; -1 or 0: off
	TopP        float64 // then keep the smallest set that holds this probability; 1: off
	MinP        float64 // then drop tokens below this share of the likeliest; 0: off
	MaxTokens   int     // tokens to generate at most; clamped to the room left in the context
	IgnoreEOS   bool    // go on past an end-of-sequence token
	Seed        *uint64 // random numbers; nil: derived from the engine's seed and the request's number
}

// DefaultSampling returns mini-sglang's defaults: greedy, 1024 tokens.
func DefaultSampling() SamplingParams {
	return SamplingParams{TopK: -1, TopP: 1, MaxTokens: 1024}
}

// minTemperature is the temperature below which sampling is greedy: dividing
// logits by less could overflow.
const minTemperature = 1e-5

// Greedy reports whether each token is the one with the largest logit.
func (p SamplingParams) Greedy() bool { return p.Temperature < minTemperature || p.TopK == 1 }

// Validate reports the first field whose value is out of range.
func (p SamplingParams) Validate() error {
	switch {
	case !(p.Temperature >= 0) || math.IsInf(p.Temperature, 0):
		return Invalid("temperature", "must be a finite number >= 0, got %v", p.Temperature)
	case p.TopK < -1:
		return Invalid("top_k", "must be -1 (off), 0 (off) or more, got %d", p.TopK)
	case !(p.TopP > 0 && p.TopP <= 1):
		return Invalid("top_p", "must be in (0, 1], got %v", p.TopP)
	case !(p.MinP >= 0 && p.MinP < 1):
		return Invalid("min_p", "must be in [0, 1), got %v", p.MinP)
	case p.MaxTokens < 1:
		return Invalid("max_tokens", "must be at least 1, got %d", p.MaxTokens)
	}
	return nil
}

// InvalidError is a request that can't be served as it stands: the caller's
// fault, told by field. Servers answer it with status 400, Python with
// ValueError.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// Invalid returns an InvalidError about a field.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}

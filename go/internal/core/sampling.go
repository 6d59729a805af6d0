// Package core holds the data that the layers of the engine share: requests,
// batches, sampling parameters. It has no behaviour to speak of and imports
// nothing of the project.
package core

import (
	"cmp"
	"fmt"
	"math"
)

// SamplingParams says how a request's tokens are chosen and when it ends. The
// zero value is not valid; start from DefaultSampling. In which order the fields
// act is told in package sampler.
type SamplingParams struct {
	Temperature float64 // 0: greedy; else logits are divided by it
	TopK        int     // keep the k likeliest tokens; -1 or 0: off
	TopP        float64 // then keep the smallest set that holds this probability; 1: off
	MinP        float64 // then drop tokens below this share of the likeliest; 0: off
	MaxTokens   int     // tokens to generate at most; clamped to the room left in the context
	IgnoreEOS   bool    // go on past an end-of-sequence token
	Seed        *uint64 // random numbers; nil: derived from the engine's seed and the request's number

	PresencePenalty   float64     // subtracted from the logits of tokens that were generated, -2 to 2; 0: off
	FrequencyPenalty  float64     // subtracted as often as they were, -2 to 2; 0: off
	RepetitionPenalty float64     // then divides their logits, or multiplies negative ones, above 0 to 2; 1: off
	LogitBias         []TokenBias // added to logits
	Grammar           Grammar     // what the output must be; else it may be anything
	MinTokens         int         // until so many tokens no end-of-sequence and no stop token is drawn

	Logprobs       bool // report each token's log-probability
	TopLogprobs    int  // and those of so many of the likeliest tokens in its place
	PromptLogprobs *int // report those of the prompt, too, for tokens after this position; nil: don't
}

// TokenBias is added to a token's logit.
type TokenBias struct {
	Token int32
	Bias  float64 // -100 to 100
}

// maxLogitBias bounds the number of biases of a request.
const maxLogitBias = 1024

// DefaultSampling returns mini-sglang's defaults: greedy, 1024 tokens.
func DefaultSampling() SamplingParams {
	return SamplingParams{TopK: -1, TopP: 1, MaxTokens: 1024, RepetitionPenalty: 1}
}

// MinTemperature is the temperature below which sampling is greedy: dividing
// logits by less could overflow.
const MinTemperature = 1e-5

// Greedy reports whether each token is the one with the largest logit.
func (p SamplingParams) Greedy() bool { return p.Temperature < MinTemperature || p.TopK == 1 }

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
	case p.MinTokens < 0 || p.MinTokens > p.MaxTokens:
		return Invalid("min_tokens", "must be from 0 to max_tokens, %d, got %d", p.MaxTokens, p.MinTokens)
	case p.MinTokens > 0 && p.Grammar.Kind != "":
		return Invalid("min_tokens", "can't be given together with %s, which says when the output may end", p.Grammar.Name())
	case p.TopLogprobs < 0 || p.TopLogprobs > MaxTopLogprobs:
		return Invalid("top_logprobs", "must be from 0 to %d, got %d", MaxTopLogprobs, p.TopLogprobs)
	case p.TopLogprobs > 0 && !p.Logprobs:
		return Invalid("top_logprobs", "needs logprobs to be true")
	case p.PromptLogprobs != nil && (!p.Logprobs || *p.PromptLogprobs < 0):
		return Invalid("prompt_logprobs", "must be at least 0, and needs logprobs to be true")
	}
	return cmp.Or(p.Grammar.validate(), p.validatePenalties())
}

func (p SamplingParams) validatePenalties() error {
	switch {
	case !(math.Abs(p.PresencePenalty) <= 2):
		return Invalid("presence_penalty", "must be from -2 to 2, got %v", p.PresencePenalty)
	case !(math.Abs(p.FrequencyPenalty) <= 2):
		return Invalid("frequency_penalty", "must be from -2 to 2, got %v", p.FrequencyPenalty)
	case !(p.RepetitionPenalty > 0 && p.RepetitionPenalty <= 2):
		return Invalid("repetition_penalty", "must be above 0 and at most 2, got %v", p.RepetitionPenalty)
	case len(p.LogitBias) > maxLogitBias:
		return Invalid("logit_bias", "has %d tokens, but may have at most %d", len(p.LogitBias), maxLogitBias)
	}
	for _, b := range p.LogitBias {
		if !(math.Abs(b.Bias) <= 100) {
			return Invalid("logit_bias", "must be from -100 to 100 for each token, got %v for token %d", b.Bias, b.Token)
		}
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

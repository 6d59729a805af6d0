// Package sampler turns a request's sampling parameters into the arguments of
// the device's Adjust, Sample and Logprobs operations. The arithmetic itself is
// the devices' (see package ops).
//
// # The order in which parameters act
//
// It is sglang's (SamplingBatchInfo.apply_logits_bias, then layers/sampler.py).
// To the logits of a request's next token are applied:
//
//  1. The additive penalties: frequency_penalty, as often as the token was
//     generated, and presence_penalty, once, are subtracted; and while there are fewer
//     than min_tokens tokens, those that would end the request get -Inf.
//  2. repetition_penalty divides the logits of generated tokens that are positive
//     and multiplies those that are negative.
//  3. logit_bias is added.
//  4. temperature divides; below 1e-5 the largest logit wins, and nothing more
//     applies.
//  5. top_k, then top_p on what is left, then min_p.
//
// The penalties look at generated tokens only, never at the prompt, as sglang's
// do (that of transformers and vLLM counts the prompt into repetition_penalty).
//
// A token's log-probability is that of the softmax after step 4 and before step
// 5, over the whole vocabulary, as sglang's is by default; that of greedy
// sampling has temperature 1. Log-probabilities of a prompt's tokens are of the
// plain logits.
package sampler

import (
	"math"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// Args returns the arguments for the token at a position of a request's
// sequence.
func Args(r *core.Req, position int) ops.Sampling {
	p := r.Params
	a := ops.Sampling{TopP: 1, Slot: int32(r.Slot), Position: uint32(position)}
	if p.Greedy() {
		return a
	}
	a.Temperature = float32(p.Temperature)
	a.TopP = float32(p.TopP)
	a.MinP = float32(p.MinP)
	a.TopK = int32(min(p.TopK, 1<<30))
	if p.Seed != nil {
		a.SeedLo, a.SeedHi = uint32(*p.Seed), uint32(*p.Seed>>32)
	}
	return a
}

// Seed derives the seed of a request that brought none from the engine's seed
// and the request's number (SplitMix64, Steele et al., 2014).
func Seed(engine uint64, uid core.UID) uint64 {
	z := engine + uint64(uid)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Adjusts reports whether the logits of a request's token at a position need an
// Adjustment.
func Adjusts(r *core.Req, position int) bool {
	p, generated := r.Params, position-r.PromptLen
	return penalises(p) && generated > 0 || len(p.LogitBias) > 0 || generated < p.MinTokens && len(r.Ends) > 0
}

func penalises(p core.SamplingParams) bool {
	return p.PresencePenalty != 0 || p.FrequencyPenalty != 0 || p.RepetitionPenalty != 1
}

// Adjustment returns what is done with a row of logits, those of the token at a
// position of a request's sequence, and appends what it needs to data. Nothing is
// kept from step to step: the generated tokens are listed anew each time. One
// that the host doesn't know yet is the one that the device sampled for the
// request's slot.
func Adjustment(r *core.Req, position, row int, data []int32) (ops.Adjustment, []int32) {
	p := r.Params
	a := ops.Adjustment{
		Row: int32(row), First: int32(len(data)), Repetition: float32(p.RepetitionPenalty),
		Presence: float32(p.PresencePenalty), Frequency: float32(p.FrequencyPenalty),
	}
	if penalises(p) {
		known := min(position, len(r.IDs))
		data = append(data, r.IDs[r.PromptLen:known]...)
		for range position - known {
			data = append(data, int32(-1-r.Slot))
		}
		a.Outputs = int32(position - r.PromptLen)
	}
	begin := len(data)
	for _, b := range p.LogitBias {
		data = append(data, b.Token, bits(b.Bias))
	}
	if position-r.PromptLen < p.MinTokens {
		for _, id := range r.Ends {
			data = append(data, id, bits(math.Inf(-1)))
		}
	}
	a.Biases = int32(len(data)-begin) / 2
	return a, data
}

func bits(x float64) int32 { return int32(math.Float32bits(float32(x))) }

// Scoring asks for the log-probability of the token that is sampled from a row
// of logits.
func Scoring(p core.SamplingParams, row int) ops.Scoring {
	s := ops.Scoring{Row: int32(row), Token: -1, Top: int32(p.TopLogprobs), Temperature: 1}
	if p.Temperature >= core.MinTemperature {
		s.Temperature = float32(p.Temperature)
	}
	return s
}

// PromptScoring asks for that of the prompt token after a position.
func PromptScoring(r *core.Req, position, row int) ops.Scoring {
	return ops.Scoring{Row: int32(row), Token: r.IDs[position+1], Top: int32(r.Params.TopLogprobs), Temperature: 1}
}

package ops

// Sampling is one row of Sample's argument tensor: eight 32-bit words, laid out
// as msgl_sampling. Filters apply in the order top-k, top-p, min-p to the
// softmax of logits/Temperature; the token is drawn from what is left by
// inverse transform in order of token id.
type Sampling struct {
	Temperature float32 // 0: the token with the largest logit, the smallest id among equals
	TopP        float32 // in (0, 1]; 1: off
	MinP        float32 // in [0, 1); 0: off
	TopK        int32   // <= 0: off
	SeedLo      uint32  // the request's seed, low word
	SeedHi      uint32  // high word
	Position    uint32  // the sampled token's position in its sequence: the counter of the random numbers
	Slot        int32   // row of Sample's table of last tokens that is to hold the token; < 0: none
}

// SamplingWords is the number of 32-bit words of a Sampling.
const SamplingWords = 8

// Sample draws one token per row of logits: next[r], and last[args[r].Slot].
//
// next is I32 [1, R], logits F32 [R, V] (a NaN may become -Inf), args I32 [R, 8] of
// Sampling rows, last I32 [1, S]. Ids from vocab on have no token and are never
// drawn. The random number of a row is the first word of Philox4x32-10 (Salmon
// et al., 2011) with key (SeedLo, SeedHi) and counter (Position, 0, 0, 0),
// divided by 2³²: it depends on nothing but the request and the position.
//
// As the last operation of a list, Sample uses up its logits: a device need not write
// those that the Linear before it gives.
func (l *List) Sample(next, logits, args, last Tensor, vocab int) {
	if ok := next.Cols == logits.Rows && args.Rows == logits.Rows && args.Cols == SamplingWords; !ok {
		l.fail(KindSample, "next %v, logits %v, args %v", next, logits, args)
	}
	if ok := vocab > 0 && vocab <= int(logits.Cols); !ok {
		l.fail(KindSample, "vocab %d, logits %v", vocab, logits)
	}
	l.add(Op{Kind: KindSample, T: [8]Tensor{next, logits, args, last}, I: [8]int32{int32(vocab)}})
}

// Adjustment is one row of Adjust's argument tensor: eight 32-bit words, laid out
// as msgl_adjustment. Its data are, from First on: Outputs token ids, then Biases
// pairs of a token id and the bits of a float32.
type Adjustment struct {
	Row        int32   // of the logits
	Presence   float32 // subtracted from each token among the outputs
	Frequency  float32 // subtracted as often as a token is among them
	Repetition float32 // then: negative logits of those tokens are multiplied by it, others divided
	First      int32
	Outputs    int32
	Biases     int32 // added last, to any token
	_          int32
}

// AdjustmentWords is the number of 32-bit words of an Adjustment.
const AdjustmentWords = 8

// Adjust changes rows of logits before Sample: penalties on the tokens that a
// request has generated, then biases.
//
// logits is F32 [R, V], rows I32 [A, 8] of Adjustment rows, at most one for each
// row of logits, data I32 [1, D], last I32 [1, S]. An output id below zero is
// that of Embed: -(s+1) stands for last[s]. Arithmetic is in float32, in this order:
// x - (Frequency·count + Presence), the repetition penalty, x + bias.
func (l *List) Adjust(logits, rows, data, last Tensor, vocab int) {
	if ok := rows.Cols == AdjustmentWords && data.DType == I32 && vocab > 0 && vocab <= int(logits.Cols); !ok {
		l.fail(KindAdjust, "logits %v, rows %v, data %v, vocab %d", logits, rows, data, vocab)
	}
	l.add(Op{Kind: KindAdjust, T: [8]Tensor{logits, rows, data, last}, I: [8]int32{int32(vocab)}})
}

// MaskWords is the number of 32-bit words of a row of Mask's bits.
func MaskWords(vocab int) int { return (vocab + 31) / 32 }

// Mask takes from rows of logits all tokens but those that their bits name: the
// others' logits become -Inf.
//
// logits is F32 [R, V], rows I32 [1, A] rows of the logits, each at most once, bits
// I32 [A, MaskWords(vocab)]. Token id is allowed if bit id%32 of word id/32 is set.
func (l *List) Mask(logits, rows, bits Tensor, vocab int) {
	if ok := bits.Rows == rows.Cols && bits.DType == I32 && vocab > 0 && vocab <= int(logits.Cols) && int(bits.Cols) == MaskWords(vocab); !ok {
		l.fail(KindMask, "logits %v, rows %v, bits %v, vocab %d", logits, rows, bits, vocab)
	}
	l.add(Op{Kind: KindMask, T: [8]Tensor{logits, rows, bits}, I: [8]int32{int32(vocab)}})
}

// Scoring is one row of Logprobs' argument tensor: four 32-bit words, laid out as
// msgl_scoring.
type Scoring struct {
	Row         int32   // of the logits
	Token       int32   // whose log-probability is wanted; < 0: the one that Sample drew for the row
	Top         int32   // how many of the likeliest tokens are wanted beside it
	Temperature float32 // that divides the logits first; > 0
}

// ScoringWords is the number of 32-bit words of a Scoring.
const ScoringWords = 4

// Logprobs takes tokens' log-probabilities: those of the softmax of
// logits/Temperature over the ids below vocab.
//
// dst is I32 [L, 1+2·K], logits F32 [R, V], rows I32 [L, 4] of Scoring rows, next
// I32 [1, R] as Sample left it (absent: no Token is below zero). A row of dst holds
// the bits of the token's log-probability, a float32, and then Top pairs of a
// token id and the bits of its log-probability, the likeliest first, of equals
// the smaller id first. A NaN counts as -Inf.
func (l *List) Logprobs(dst, logits, rows, next Tensor, vocab int) {
	if ok := dst.Rows == rows.Rows && rows.Cols == ScoringWords && dst.Cols%2 == 1 && dst.DType == I32 && vocab > 0 && vocab <= int(logits.Cols); !ok {
		l.fail(KindLogprobs, "dst %v, logits %v, rows %v, vocab %d", dst, logits, rows, vocab)
	}
	if ok := !next.Valid() || next.Cols == logits.Rows; !ok {
		l.fail(KindLogprobs, "next %v, logits %v", next, logits)
	}
	l.add(Op{Kind: KindLogprobs, T: [8]Tensor{dst, logits, rows, next}, I: [8]int32{int32(vocab)}})
}

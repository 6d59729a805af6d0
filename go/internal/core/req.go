package core

// UID numbers the requests of an engine, from 1 on, in order of arrival.
type UID uint64

// FinishReason says why a request ended; "" while it runs. The values are
// OpenAI's where OpenAI has one.
type FinishReason string

const (
	FinishStop   FinishReason = "stop"
	FinishLength FinishReason = "length"
	FinishAbort  FinishReason = "abort"
	FinishError  FinishReason = "error"
)

// Page is the number of a KV page, from 0 on.
type Page int32

// Req is a request in the scheduler. Its sequence is the prompt and what was
// generated; of the sequence, CachedLen tokens were found in the prefix cache
// and DeviceLen tokens (those included) have their keys and values in Pages, or
// will have when the batch in flight has run.
type Req struct {
	UID       UID
	Params    SamplingParams
	IDs       []int32 // the prompt, then the generated tokens that the host has seen
	PromptLen int
	MaxLen    int // the sequence's length at which it ends: prompt and at most MaxTokens

	// Ends are the tokens that end the request; Params.MinTokens holds them back.
	Ends []int32

	Matcher Matcher // of Params.Grammar; nil: none

	CachedLen int
	DeviceLen int
	Pages     []Page // in order of position; the last one may be partly used
	Slot      int    // row of the device's table of last tokens; -1: none
}

// RemainLen is the number of tokens that the request may still generate.
func (r *Req) RemainLen() int { return r.MaxLen - len(r.IDs) }

// Phase tells what a batch does.
type Phase uint8

const (
	Prefill Phase = iota // computes prompts, or chunks of them
	Decode               // computes one token for each running request
)

func (p Phase) String() string {
	if p == Decode {
		return "decode"
	}
	return "prefill"
}

// Seq is one request's part of a batch: positions [Start, End) of its sequence.
type Seq struct {
	Req        *Req
	Start, End int
	Sample     bool // the last position's logits are wanted: the chunk ends the prompt
	// ScoreFrom is the first position whose next token is a prompt token whose
	// log-probability is wanted, if Req.Params.PromptLogprobs asks for any; they go up
	// to End.
	ScoreFrom int
	// Draft are guesses of the tokens that follow the known ones: the inputs of the
	// batch's last positions. With them, each position from the one before them on
	// gives a token.
	Draft []int32
}

// ExtendLen is the number of positions that the batch computes for the request.
func (s Seq) ExtendLen() int { return s.End - s.Start }

// Samples is the number of tokens that the batch gives for the request.
func (s Seq) Samples() int {
	if !s.Sample {
		return 0
	}
	return 1 + len(s.Draft)
}

// Input is the token at a position of the batch. One that the host does not know
// yet is -1-Slot: the one that the device sampled for the request's slot.
func (s Seq) Input(position int) int32 {
	ids := s.Req.IDs
	switch draft := position - (s.End - len(s.Draft)); {
	case draft >= 0:
		return s.Draft[draft]
	case position < len(ids):
		return ids[position]
	}
	return int32(-1 - s.Req.Slot)
}

// Batch is one forward pass.
type Batch struct {
	Phase  Phase
	Seqs   []Seq
	Tokens int // the sum of ExtendLen
}

// Scored is the half-open range of positions of the batch whose next tokens are
// prompt tokens with a wanted log-probability.
func (s Seq) Scored() (from, to int) {
	if s.Req.Params.PromptLogprobs == nil {
		return s.End, s.End
	}
	return max(s.Start, s.ScoreFrom), min(s.End, s.Req.PromptLen-1)
}

// Package llm is the engine's public face: it loads a model, takes requests and
// gives back tokens. The server, the Python bindings and the offline benches all
// stand on it.
//
//	engine, err := llm.New(ctx, llm.Config{Model: "smollm2-135m"})
//	defer engine.Close()
//	outs, err := engine.Generate(ctx, []llm.Request{{Text: "The capital of France is", Params: llm.DefaultSampling()}}, nil)
package llm

import (
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
)

// SamplingParams, FinishReason and InvalidError are shared with the layers below.
type (
	SamplingParams = core.SamplingParams
	FinishReason   = core.FinishReason
	InvalidError   = core.InvalidError
	TokenBias      = core.TokenBias
	Grammar        = core.Grammar
	GrammarKind    = core.GrammarKind
	TokenLogprob   = core.TokenLogprob
	Logprob        = core.Logprob
)

// MaxTopLogprobs bounds SamplingParams.TopLogprobs.
const MaxTopLogprobs = core.MaxTopLogprobs

// The kinds of grammars.
const (
	GrammarJSONSchema = core.GrammarJSONSchema
	GrammarJSONObject = core.GrammarJSONObject
	GrammarRegex      = core.GrammarRegex
	GrammarEBNF       = core.GrammarEBNF
	GrammarStructural = core.GrammarStructural
)

// The reasons why a request ended.
const (
	FinishStop   = core.FinishStop   // an end-of-sequence token, or one of Request's stops
	FinishLength = core.FinishLength // max_tokens, or the context is full
	FinishAbort  = core.FinishAbort  // the caller gave up, or the engine was closed
	FinishError  = core.FinishError  // the device failed; see Event.Err
)

// DefaultSampling returns greedy sampling of at most 1024 tokens.
func DefaultSampling() SamplingParams { return core.DefaultSampling() }

// Request is one prompt. TokenIDs wins when it is not nil; else Text is encoded,
// with the special tokens that the tokenizer adds (no chat template; see
// LLM.EncodeChat).
//
// Stop and StopTokenIDs end a Stream early, with FinishStop: the text ends right
// before the stop string, and a stop token is not reported. Generate refuses them.
type Request struct {
	Text         string
	TokenIDs     []int32
	Params       SamplingParams
	Stop         []string // at most 16, each of 1 to 4096 bytes
	StopTokenIDs []int32
	KeepSpecial  []string // special tokens that a Stream's text has
}

// Event is one step of a running request. Every accepted request gives exactly
// one event whose Finish is set, and nothing after it. Each generated token has
// an event of its own, in order; an end-of-sequence token that ended the request
// is not reported as a token.
type Event struct {
	Token    int32        // the generated token, if HasToken
	HasToken bool         // false: this event only ends the request
	Text     string       // text that became certain; "" while a character, or what may be a stop string, is incomplete
	Finish   FinishReason // "" while running
	Stop     string       // the stop string that ended the request, if one did
	Err      error        // why, if Finish is FinishError
	Usage    Usage        // as of this event
	Begun    time.Time    // when the request's first batch was planned, the end of its wait; zero if it had none

	Logprob       *TokenLogprob  // of the token, if SamplingParams.Logprobs asked for it
	PromptLogprob []TokenLogprob // of the prompt's tokens, if asked for: in the first event
}

// Usage counts a request's tokens.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // prompt tokens whose KV was found in the prefix cache
	CompletionTokens int
}

// Output is a finished request. TokenIDs and Text are without the
// end-of-sequence token that ended it; Text keeps special tokens, as
// mini-sglang's offline API does.
type Output struct {
	Text     string
	TokenIDs []int32
	Finish   FinishReason
	Usage    Usage
	Logprobs []TokenLogprob // of TokenIDs, if SamplingParams.Logprobs asked for them
	// PromptLogprobs are of the prompt's tokens after position
	// SamplingParams.PromptLogprobs.
	PromptLogprobs []TokenLogprob

	TTFT time.Duration // from submission to the first token
	E2E  time.Duration // from submission to the end
}

// Progress tells how far a Generate call is.
type Progress struct {
	Requests, DoneRequests int
	PromptTokens           int // computed or found in the cache so far
	CompletionTokens       int
}

// Info describes a loaded model.
type Info struct {
	Model        string // as given in Config.Model
	Path         string // what it resolved to
	Architecture string
	DType        string // of weights that are not quantized
	KVCacheDType string
	Device       string // with the instruction set, "cpu (avx512)"
	Threads      int
	VocabSize    int
	MaxSeqLen    int // prompt and output together
	NumPages     int
	PageSize     int
	LoadTime     time.Duration

	WeightBytes   int64   // what a step reads of the loaded weights: all but an embedding that is not the head too
	TokenBytes    int64   // of a token's keys and values in the KV cache, all layers
	FlopsPerToken float64 // of the projections, without the head; of a mixture of experts, those of one token

	SpeculativeAlgorithm   string // "": none
	SpeculativeDraftTokens int    // guesses in a batch at most

	Defaults SamplingDefaults
}

// SamplingDefaults are what a model's authors recommend in its
// generation_config.json, for requests that don't say otherwise; nil where they
// don't. The server uses them, Generate and Stream take each request as it is.
type SamplingDefaults struct {
	Temperature, TopP, MinP, RepetitionPenalty *float64
	TopK                                       *int
}

// Apply sets the fields of p for which there is a default.
func (d SamplingDefaults) Apply(p *SamplingParams) {
	setTo(&p.Temperature, d.Temperature)
	setTo(&p.TopP, d.TopP)
	setTo(&p.MinP, d.MinP)
	setTo(&p.TopK, d.TopK)
	setTo(&p.RepetitionPenalty, d.RepetitionPenalty)
}

func setTo[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// Stats is a snapshot of a running engine.
type Stats struct {
	Waiting, Running            int
	FreePages, TotalPages       int   // KV pages that nobody owns; all there are
	CachedPages, EvictablePages int   // owned by the prefix cache; of those, used by nobody
	CacheNodes                  int   // of the prefix cache's tree, without its root
	Preemptions                 int64 // requests put back for want of pages
	PromptTokens, CachedTokens  int64 // computed, and found in the prefix cache, since the start
	CompletionTokens            int64
	FinishedReqs, AbortedReqs   int64
	PrefillBatches, DecodeSteps int64
	Forward                     time.Duration // time spent in forward passes
	RequestSteps                int64         // decoding steps, each counted for each of its requests
	DraftTokens, AcceptedTokens int64         // guesses of speculation that were verified; of those, right ones
	JumpedTokens                int64         // that grammars forced, and nothing sampled
}

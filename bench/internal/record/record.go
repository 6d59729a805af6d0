// Package record holds what a load generator observed of one request: raw times
// and counts, from which every figure is computed later.
package record

import (
	"fmt"
	"time"
)

// Kind says how a request ended.
type Kind int

// A request either succeeded or failed in one of these ways.
const (
	OK          Kind = iota
	Connect          // no connection, or it closed before an answer
	HTTPStatus       // an answer with a status other than 200
	Timeout          // the request's or the idle time limit passed
	StreamError      // an error reported inside the stream, with status 200
	Truncated        // the stream ended without [DONE] or a finish reason
	BadJSON          // an event that is not the JSON it should be
	Cancelled        // the run was interrupted
)

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case OK:
		return "ok"
	case Connect:
		return "connect"
	case HTTPStatus:
		return "http status"
	case Timeout:
		return "timeout"
	case StreamError:
		return "stream error"
	case Truncated:
		return "truncated stream"
	case BadJSON:
		return "bad json"
	case Cancelled:
		return "cancelled"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// TokenSource says how the tokens of a request were counted.
type TokenSource int

// From the most exact to the least.
const (
	NoTokens        TokenSource = iota // nothing was counted
	ContinuousUsage                    // usage on each chunk: tokens and their times are known
	FinalUsage                         // usage at the end: the total is known, spread evenly over the chunks
	Chunks                             // no usage: one chunk counts as one token
)

// String returns the source in words.
func (s TokenSource) String() string {
	switch s {
	case NoTokens:
		return "none"
	case ContinuousUsage:
		return "server usage on every chunk"
	case FinalUsage:
		return "server usage at the end, spread over chunks"
	case Chunks:
		return "chunks counted as tokens (server sent no usage)"
	}
	return fmt.Sprintf("source %d", int(s))
}

// Record is one request. Times are counted from the start of the run.
type Record struct {
	Index    int
	Intended time.Duration // when the schedule wanted it sent
	Released time.Duration // when the client got to it; later than Intended only if the client lags
	Start    time.Duration // when it was sent, after any wait for a concurrency slot
	Done     time.Duration // when its stream ended, or it failed

	FirstByte time.Duration // first event of any kind; 0 if there was none
	// Tokens has one entry for each output token. The tokens of one chunk share
	// its gap: k tokens in a chunk that came a time g after the one before are
	// put g/k apart. Those of the first chunk all arrive with it.
	Tokens     []time.Duration
	FirstChunk int // tokens in the first chunk that carried any

	// WholeAnswer is set when the answer was asked for in one piece: then its
	// tokens all have the time of its end, and only whole latencies mean anything.
	WholeAnswer bool

	InputLen     int // prompt tokens as the load generator counts them; -1 if it does not
	PromptTokens int // as the server reported; -1 if it did not
	CachedTokens int // of them found in the server's prefix cache; -1 if not reported
	MaxTokens    int // as asked
	Source       TokenSource
	Finish       string // finish_reason
	Text         string // all channels, in order
	Retokenized  int    // tokens of Text by a tokenizer; -1 if none was asked

	Kind   Kind
	Status int    // HTTP status, 0 if there was no answer
	Err    string // what went wrong, for a person to read
}

// OK reports whether the request succeeded.
func (r *Record) OK() bool { return r.Kind == OK }

// End returns when the last token arrived, or for a request without tokens when
// its stream ended.
func (r *Record) End() time.Duration {
	if n := len(r.Tokens); n > 0 {
		return r.Tokens[n-1]
	}
	return r.Done
}

// String tells how the request went, in one line.
func (r *Record) String() string {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	if !r.OK() {
		return fmt.Sprintf("request %d: %s after %.2f ms: %s", r.Index, r.FailureLabel(), ms(r.Done-r.Start), r.Err)
	}
	first := ""
	if len(r.Tokens) > 0 && !r.WholeAnswer {
		first = fmt.Sprintf("TTFT %.2f ms, ", ms(r.Tokens[0]-r.Start))
	}
	return fmt.Sprintf("request %d: sent at %.2f ms, %sE2E %.2f ms, %d tokens", r.Index, ms(r.Start), first, ms(r.End()-r.Start), len(r.Tokens))
}

// FailureLabel names the failure in a table; HTTP failures differ by status.
func (r *Record) FailureLabel() string {
	if r.Kind == HTTPStatus {
		return fmt.Sprintf("http %d", r.Status)
	}
	return r.Kind.String()
}

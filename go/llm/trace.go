package llm

import (
	"sync"
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
)

// BatchTrace is one forward pass in a trace.
type BatchTrace struct {
	Start, End time.Time // End is when the host had its tokens
	Prefill    bool      // computes prompts or chunks of them
	Requests   int
	Tokens     int // positions computed
	Sampled    int // tokens generated, those of wrong guesses included
}

// maxTrace bounds a trace, in batches; later ones are left out.
const maxTrace = 1 << 18

// trace collects what happens between StartTrace and StopTrace.
type trace struct {
	mu      sync.Mutex
	on      bool
	batches []BatchTrace
}

// StartTrace begins to record the batches, anew if it has begun before.
func (l *LLM) StartTrace() {
	l.trace.mu.Lock()
	defer l.trace.mu.Unlock()
	l.trace.on, l.trace.batches = true, nil
}

// StopTrace ends the recording and returns it, the oldest batch first.
func (l *LLM) StopTrace() []BatchTrace {
	l.trace.mu.Lock()
	defer l.trace.mu.Unlock()
	batches := l.trace.batches
	l.trace.on, l.trace.batches = false, nil
	return batches
}

func (t *trace) add(b *core.Batch, start, end time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.on || len(t.batches) == maxTrace {
		return
	}
	bt := BatchTrace{Start: start, End: end, Prefill: b.Phase == core.Prefill, Requests: len(b.Seqs), Tokens: b.Tokens}
	for _, seq := range b.Seqs {
		bt.Sampled += seq.Samples()
	}
	t.batches = append(t.batches, bt)
}

package llm

import (
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/scheduler"
)

// count adds a batch that has run to the statistics.
func (l *LLM) count(f *flight) {
	now := time.Now()
	begun := f.start
	if l.lastEnd.After(begun) {
		begun = l.lastEnd // it was submitted while another one ran
	}
	l.lastEnd = now
	l.trace.add(f.batch, begun, now)
	if f.batch.Phase == core.Decode {
		l.sched.Took(f.batch.Tokens, now.Sub(begun).Seconds())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Forward += now.Sub(begun)
	if f.batch.Phase == core.Prefill {
		l.stats.PrefillBatches++
	} else {
		l.stats.DecodeSteps++
	}
	for _, seq := range f.batch.Seqs {
		if seq.Start < seq.Req.PromptLen {
			l.stats.PromptTokens += int64(min(seq.End, seq.Req.PromptLen) - seq.Start)
		}
		if seq.Start >= seq.Req.PromptLen && seq.Samples() == seq.ExtendLen() {
			l.stats.RequestSteps++
		}
	}
}

// countTokens adds the tokens that a batch gave, whether they were sampled, guessed
// rightly or forced.
func (l *LLM) countTokens(outs []scheduler.Output) {
	status := l.sched.Status()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, out := range outs {
		if out.HasToken {
			l.stats.CompletionTokens++
		}
	}
	l.stats.DraftTokens, l.stats.AcceptedTokens, l.stats.JumpedTokens = status.Drafted, status.Accepted, status.Jumped
}

func (l *LLM) countFinish(out scheduler.Output) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if out.Finish == core.FinishAbort {
		l.stats.AbortedReqs++
	} else {
		l.stats.FinishedReqs++
		l.stats.CachedTokens += int64(out.Req.CachedLen)
	}
}

// publish brings the scheduler's figures into the statistics.
func (l *LLM) publish() {
	status := l.sched.Status()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Waiting = status.Waiting
	l.stats.Running = status.Running
	l.stats.FreePages = status.FreePages
	l.stats.CachedPages = status.CachedPages
	l.stats.EvictablePages = status.EvictablePages
	l.stats.CacheNodes = status.CacheNodes
	l.stats.Preemptions = status.Preemptions
	l.stats.TotalPages = l.info.NumPages
}

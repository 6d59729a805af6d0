package scheduler

import (
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
)

// planPrefill adds prompt tokens to a batch, up to the budget: first the rest of
// prompts that were cut before, then waiting requests in the order of the
// policy. Beside decoding requests the budget is MixedTokens.
func (s *Scheduler) planPrefill(b *core.Batch) {
	budget := s.cfg.MaxExtendTokens
	if len(b.Seqs) > 0 {
		budget = min(budget, s.cfg.MixedTokens)
	}
	for _, e := range slices.Clone(s.chunked()) {
		if budget > 0 && e.running {
			budget -= s.extend(b, e, budget)
		}
	}
	for budget > 0 {
		e := s.admitNext()
		if e == nil {
			return
		}
		budget -= s.extend(b, e, budget)
	}
}

// chunked returns the running requests whose prompt is not planned to its end,
// the oldest first.
func (s *Scheduler) chunked() []*entry {
	list := s.order[:0]
	for _, e := range s.running {
		if !e.done && e.req.DeviceLen < e.target {
			list = append(list, e)
		}
	}
	s.order = list
	return list
}

// extend adds a chunk of e's prompt, at most budget tokens, and returns its
// length: 0 if there are no pages now. The chunk that ends the prompt gives a
// token.
func (s *Scheduler) extend(b *core.Batch, e *entry, budget int) int {
	end := min(e.target, e.req.DeviceLen+budget)
	n := end - e.req.DeviceLen
	if !s.ensure(b, e, end) {
		return 0
	}
	b.Phase = core.Prefill
	s.add(b, e, end, end == e.target, nil)
	return n
}

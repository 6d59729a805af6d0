package scheduler

import "github.com/minisgl/minisgl/go/internal/core"

// planPrefill fills a batch with prompt tokens up to the budget: first the rest
// of a prompt that was cut before, then waiting requests in order of arrival. It
// stops at the first that does not fit now.
func (s *Scheduler) planPrefill(b *core.Batch) {
	b.Phase = core.Prefill
	budget := s.cfg.MaxExtendTokens
	for _, e := range s.running {
		if budget > 0 && e.req.DeviceLen < e.req.PromptLen && !e.done {
			budget -= s.extend(b, e, budget)
		}
	}
	for budget > 0 && len(s.waiting) > 0 && s.admit(s.waiting[0]) {
		e := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.running = append(s.running, e)
		budget -= s.extend(b, e, budget)
	}
}

// extend adds a chunk of e's prompt, at most budget tokens, and returns its
// length. The chunk that ends the prompt gives the first token.
func (s *Scheduler) extend(b *core.Batch, e *entry, budget int) int {
	r := e.req
	end := min(r.PromptLen, r.DeviceLen+budget)
	n := end - r.DeviceLen
	s.pages.grow(r, end)
	s.add(b, e, end, end == r.PromptLen)
	return n
}

// admit gives a waiting request a slot and the cached prefix of its prompt, if
// its whole length fits beside what the running requests may still need.
func (s *Scheduler) admit(e *entry) bool {
	if len(s.slots) == 0 || s.demand(e)+s.reserved() > s.pages.available() {
		return false
	}
	e.req.Slot = s.slots[len(s.slots)-1]
	s.slots = s.slots[:len(s.slots)-1]
	s.pages.attach(e)
	return true
}

// demand is the number of pages that e may still need: the last token's key and
// value are never computed.
func (s *Scheduler) demand(e *entry) int {
	return s.pages.needed(e.req.MaxLen-1) - len(e.req.Pages)
}

// reserved is the demand of all running requests.
func (s *Scheduler) reserved() int {
	n := 0
	for _, e := range s.running {
		if !e.done {
			n += s.demand(e)
		}
	}
	return n
}

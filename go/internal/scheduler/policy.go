package scheduler

import (
	"cmp"
	"slices"
)

// Order says which waiting request is tried first. Names as sglang's
// --schedule-policy.
type Order uint8

const (
	FCFS Order = iota // first come, first served
	LPM               // the longest prefix that is cached first, so that it is used before it is evicted
)

// matchLimit bounds the waiting requests whose cached prefix is looked up at each
// step.
const matchLimit = 128

// candidates returns the waiting requests to try, in order.
func (s *Scheduler) candidates() []*entry {
	if s.cfg.Order == LPM {
		return s.byPrefix()
	}
	s.order = append(s.order[:0], s.waiting[:min(len(s.waiting), lookahead)]...)
	return s.order
}

// byPrefix orders the first waiting requests by the length of their cached
// prefix; those that were passed too often come before all.
func (s *Scheduler) byPrefix() []*entry {
	type ranked struct {
		e      *entry
		cached int
	}
	list := make([]ranked, 0, matchLimit)
	for _, e := range s.waiting[:min(len(s.waiting), matchLimit)] {
		cached := len(s.pages.cache.Match(e.req.IDs).Pages)
		if e.passed >= maxPassed {
			cached = s.cfg.NumPages
		}
		list = append(list, ranked{e, cached})
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(b.cached, a.cached) })
	s.order = s.order[:0]
	for _, r := range list[:min(len(list), lookahead)] {
		s.order = append(s.order, r.e)
	}
	return s.order
}

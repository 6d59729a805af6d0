package scheduler

import (
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
)

const (
	lookahead = 16 // waiting requests that are tried for one that fits
	maxPassed = 64 // how often a request may be passed before nobody may
)

// admitNext admits the first waiting request that fits, or returns nil. Requests
// that do not fit yet may be passed, but not for ever.
func (s *Scheduler) admitNext() *entry {
	if len(s.slots) == 0 || s.stuck {
		return nil
	}
	order := s.candidates()
	for i, e := range order {
		if s.admit(e) {
			for _, before := range order[:i] {
				before.passed++
			}
			return e
		}
		if e.passed >= maxPassed {
			break
		}
	}
	s.stuck = true
	return nil
}

// admit gives a waiting request a slot and the cached prefix of its prompt, if
// what it is expected to need fits beside what the running requests are.
func (s *Scheduler) admit(e *entry) bool {
	if e.inFlight > 0 {
		return false // preempted, and its latest token is not known yet
	}
	e.target = len(e.req.IDs)
	s.pages.attach(e)
	if s.demand(e)+s.reserved() > s.pages.available() {
		s.pages.detach(e)
		return false
	}
	i := slices.Index(s.waiting, e)
	s.waiting = slices.Delete(s.waiting, i, i+1)
	at, _ := slices.BinarySearchFunc(s.running, e.req.UID, func(r *entry, uid core.UID) int { return int(r.req.UID) - int(uid) })
	s.running = slices.Insert(s.running, at, e)
	e.running = true
	e.req.Slot = s.slots[len(s.slots)-1]
	s.slots = s.slots[:len(s.slots)-1]
	return true
}

// demand is the number of pages that e is expected to need beyond those it has.
func (s *Scheduler) demand(e *entry) int {
	reach := max(e.target, e.req.DeviceLen, s.share.reach(e.req))
	return max(0, s.pages.needed(reach)-len(e.req.Pages))
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

// share estimates which part of their max_tokens requests use, from those that
// have ended. Too low an estimate costs preemptions, too high an estimate leaves
// pages unused; neither changes a token.
type share struct {
	value float64
	fixed bool
}

const (
	firstShare = 0.5
	leastShare = 0.1
	shareStep  = 1.0 / 16 // weight of one ended request
	shareRaise = 0.1      // by a preemption
)

func newShare(conservative bool) share {
	if conservative {
		return share{value: 1, fixed: true}
	}
	return share{value: firstShare}
}

// reach is the number of positions that a request is expected to compute: its
// last token's key and value are not needed.
func (s *share) reach(r *core.Req) int {
	out := math.Ceil(s.value * float64(r.MaxLen-r.PromptLen))
	return min(r.PromptLen+int(out), r.MaxLen) - 1
}

// learn takes account of a request that has ended by itself.
func (s *share) learn(r *core.Req) {
	if !s.fixed {
		used := float64(len(r.IDs)-r.PromptLen) / float64(r.MaxLen-r.PromptLen)
		s.value = max(leastShare, s.value+(used-s.value)*shareStep)
	}
}

// raise takes account of a preemption.
func (s *share) raise() {
	if !s.fixed {
		s.value = min(1, s.value+shareRaise)
	}
}

package scheduler

import (
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
)

// planDecode adds one position for each running request whose prompt is computed
// and which has a token left to give, and further ones for guesses. The input
// token of a request may still be on its way: then it is the one that the batch in
// flight gives. It reports false if nothing is to be planned until that is known.
func (s *Scheduler) planDecode(b *core.Batch) bool {
	if !s.speculate() {
		return false
	}
	for i := 0; i < len(s.running); i++ {
		e := s.running[i]
		if !s.decodes(e) {
			continue
		}
		if s.addGuesses(b, e) {
			continue
		}
		if end := e.req.DeviceLen + 1; s.ensure(b, e, end) {
			s.add(b, e, end, true, nil)
		}
	}
	return true
}

// decodes reports whether a running request could decode in the next batch.
func (s *Scheduler) decodes(e *entry) bool {
	return !e.done && e.req.DeviceLen >= e.target && e.req.DeviceLen < e.req.MaxLen-1
}

// ensure gives e pages for n positions. When there are too few, it preempts the
// youngest request that is younger than e and not in the batch, and the next
// one, until there are enough. It reports false if that does not do: then e
// waits, and an older request will take e's own pages if it must.
func (s *Scheduler) ensure(b *core.Batch, e *entry, n int) bool {
	for !s.pages.grow(e.req, n, 0) {
		victim := s.youngest(b)
		if victim == nil || victim.req.UID <= e.req.UID {
			return false
		}
		s.preempt(victim)
	}
	return true
}

// youngest returns the youngest running request that has not ended and is not in
// the batch.
func (s *Scheduler) youngest(b *core.Batch) *entry {
	for _, e := range slices.Backward(s.running) {
		if !e.done && (e.inFlight == 0 || e.planned != b) {
			return e
		}
	}
	return nil
}

// preempt puts a running request back at the head of the queue. What it has
// computed goes to the prefix cache; what is lost of it is computed again. A
// token that is on its way still counts.
func (s *Scheduler) preempt(e *entry) {
	s.leave(e)
	e.req.Slot = -1
	e.req.DeviceLen = 0
	e.preempted = true
	s.waiting = slices.Insert(s.waiting, 0, e)
	s.preemptions++
	s.share.raise()
}

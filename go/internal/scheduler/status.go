package scheduler

import (
	"fmt"
	"slices"

	"github.com/minisgl/minisgl/go/internal/kvcache"
)

// Status is a snapshot of the scheduler's books.
type Status struct {
	Waiting, Running int
	FreePages        int // owned by nobody
	CachedPages      int // kept by the prefix cache
	EvictablePages   int // of those: could be had
	CacheNodes       int // of the prefix cache's tree
	Preemptions      int64
	Drafted          int64 // guessed tokens that were verified
	Accepted         int64 // of those: right
	Jumped           int64 // tokens that a grammar forced, and nothing sampled
}

// Status returns the books as they are now.
func (s *Scheduler) Status() Status {
	return Status{
		Waiting: len(s.waiting), Running: len(s.running), FreePages: s.pages.pool.Free(),
		CachedPages: s.pages.cache.Pages(), EvictablePages: s.pages.cache.Evictable(),
		CacheNodes: s.pages.cache.Nodes(), Preemptions: s.preemptions, Drafted: s.drafted, Accepted: s.accepted,
		Jumped: s.jumped,
	}
}

// Idle reports whether no request is left.
func (s *Scheduler) Idle() bool { return len(s.byUID) == 0 }

// CheckIntegrity proves that each page and each slot has exactly one owner.
func (s *Scheduler) CheckIntegrity() error {
	owners := kvcache.NewOwners(s.cfg.NumPages)
	slots := slices.Clone(s.slots)
	for i, e := range s.running {
		if i > 0 && s.running[i-1].req.UID >= e.req.UID {
			return fmt.Errorf("scheduler: request %d runs after request %d", e.req.UID, s.running[i-1].req.UID)
		}
		slots = append(slots, e.req.Slot)
		own := owners.Own(fmt.Sprintf("request %d", e.req.UID))
		for _, p := range e.req.Pages[len(e.handle.Pages):] {
			own(p)
		}
		if have := len(e.req.Pages) * s.cfg.PageSize; have < e.req.DeviceLen {
			return fmt.Errorf("scheduler: request %d computed %d positions, but has pages for %d", e.req.UID, e.req.DeviceLen, have)
		}
	}
	if err := s.pages.check(owners); err != nil {
		return err
	}
	slices.Sort(slots)
	for i, slot := range slots {
		if slot != i {
			return fmt.Errorf("scheduler: slots %v have not one owner each", slots)
		}
	}
	return nil
}

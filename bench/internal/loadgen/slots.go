package loadgen

import "sync"

// slots limits how many requests are in flight. Those that wait go in the order
// in which they took a turn.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{}
}

// turn returns a channel that is closed when the caller has a slot.
func (s *slots) turn() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := make(chan struct{})
	if s.free > 0 {
		s.free--
		close(ready)
	} else {
		s.waiting = append(s.waiting, ready)
	}
	return ready
}

// release gives a slot to the next in turn.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	close(s.waiting[0])
	s.waiting = s.waiting[1:]
}

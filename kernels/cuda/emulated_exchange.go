//go:build !cuda && amd64

package cuda

// #include "msgl_cuda.h"
// int msglEmuGather(uint64_t rank, void *all, void *own, uint64_t count, uint64_t stream);
import "C"

import (
	"runtime/cgo"
	"sync"
	"unsafe"
)

// Meeting is the exchange of emulated ranks: each waits in a gather until all are there.
type Meeting struct {
	mu     sync.Mutex
	moved  *sync.Cond
	own    [][]float32 // of each rank that is there
	there  int
	leave  int  // how many have still to take what they came for
	broken bool // a rank will not come any more
}

// seat is a rank's place in a meeting.
type seat struct {
	meeting *Meeting
	rank    int
}

// NewMeeting returns a meeting of so many ranks.
func NewMeeting(ranks int) *Meeting {
	m := &Meeting{own: make([][]float32, ranks)}
	m.moved = sync.NewCond(&m.mu)
	return m
}

// Exchange returns a rank's way to exchange, and what gives that up.
func (m *Meeting) Exchange(rank int) (Exchange, func()) {
	h := cgo.NewHandle(&seat{meeting: m, rank: rank})
	return Exchange{Gather: C.msglEmuGather, Rank: uint64(h), Ranks: len(m.own)}, h.Delete
}

// Abort ends the meeting: whoever waits or comes later gets an error.
func (m *Meeting) Abort() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = true
	m.moved.Broadcast()
}

// Aborted reports whether the meeting was ended.
func (m *Meeting) Aborted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken
}

//export msglEmuGather
func msglEmuGather(rank C.uint64_t, all, own unsafe.Pointer, count, stream C.uint64_t) C.int {
	s := cgo.Handle(rank).Value().(*seat)
	n, order := int(count), running
	emulation.Unlock() // the others need it to get here
	defer take(order)
	if !s.meeting.gather(s.rank, unsafe.Slice((*float32)(all), n*len(s.meeting.own)), unsafe.Slice((*float32)(own), n)) {
		return 1
	}
	return 0
}

// gather waits for all ranks and copies what each has; false if the meeting was aborted.
func (m *Meeting) gather(rank int, all, own []float32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.await(func() bool { return m.leave == 0 }) // the exchange before is over
	m.own[rank] = own
	m.there++
	if m.there == len(m.own) {
		m.leave = m.there
		m.moved.Broadcast()
	}
	m.await(func() bool { return m.leave > 0 })
	if m.broken {
		return false
	}
	for i, part := range m.own {
		copy(all[i*len(own):], part)
	}
	m.leave--
	if m.leave == 0 {
		m.there = 0
		m.moved.Broadcast()
	}
	m.await(func() bool { return m.leave == 0 }) // nobody reads own any more
	return !m.broken
}

func (m *Meeting) await(ready func() bool) {
	for !ready() && !m.broken {
		m.moved.Wait()
	}
}

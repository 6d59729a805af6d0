package engine

import (
	"errors"
	"sync"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// TestPopulaterStaysAhead checks that what batches write to is populated before, once, up to the
// cache's end, and nothing far beyond what they have reached.
func TestPopulaterStaysAhead(t *testing.T) {
	const rows, row, step = 100, 8, 10
	tensors := []ops.Tensor{ops.New(1000, rows, row/4, ops.F32), ops.New(5000, rows, row/4, ops.F32)}
	var mu sync.Mutex
	times := map[ops.Addr]int{}
	p := &populater{ahead: step / 2, wake: make(chan struct{}, 1), done: make(chan struct{})}
	seen := make(chan struct{}, 1000)
	go func() {
		defer close(p.done)
		p.run(tensors, step, row, func(a ops.Addr, n int64) error {
			mu.Lock()
			defer mu.Unlock()
			for i := range n {
				times[a+ops.Addr(i)]++
			}
			seen <- struct{}{}
			return nil
		})
	}()
	for _, c := range []struct {
		slots []int32
		calls int // beside those before
		rows  int // populated by then, behind the first step
	}{{nil, 0, 0}, {[]int32{0, 4, 3}, 0, 0}, {[]int32{0, 5, 3}, 2, 10}, {[]int32{15, 16}, 2, 20}, {[]int32{5}, 0, 20}, {[]int32{99}, 14, 90}} {
		p.reach(c.slots)
		for range c.calls {
			<-seen
		}
		mu.Lock()
		if len(times) != 2*row*c.rows {
			t.Errorf("after slots %v: %d bytes populated, want %d", c.slots, len(times), 2*row*c.rows)
		}
		mu.Unlock()
	}
	p.close()
	for a, n := range times {
		if n != 1 {
			t.Fatalf("byte %d was populated %d times", a, n)
		}
	}
}

// TestPopulaterGivesUp checks that where the system can't, the engine goes on without.
func TestPopulaterGivesUp(t *testing.T) {
	p := &populater{ahead: 10, wake: make(chan struct{}, 1), done: make(chan struct{})}
	calls := 0
	go func() {
		defer close(p.done)
		p.run([]ops.Tensor{ops.New(1000, 100, 2, ops.F32)}, 5, 8, func(ops.Addr, int64) error {
			calls++
			return errors.New("no such advice")
		})
	}()
	p.reach([]int32{20})
	<-p.done
	p.reach([]int32{50})
	p.close()
	if calls != 1 {
		t.Errorf("%d calls after the first had failed, want 1 in all", calls)
	}
}

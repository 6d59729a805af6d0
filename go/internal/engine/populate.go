package engine

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/minisgl/minisgl/go/internal/ops"
)

const populateStep = 2 << 20 // bytes of each tensor at a time: the system's huge page

// systemMemory is a device whose memory the system gives on first use.
type systemMemory interface {
	// Populate has n bytes, from a on, given now.
	Populate(a ops.Addr, n int64) error
}

// populater has the system give the memory of a KV cache a little ahead of its use. A batch
// that is the first to write to a part of it would wait until the system has cleared two
// huge pages for every layer. What the first batches need comes with them: nothing is
// ahead of those.
type populater struct {
	wanted atomic.Int64 // rows of each tensor
	ahead  int64        // rows, half a step
	wake   chan struct{}
	done   chan struct{}
}

// newPopulater returns nil where nothing can be done ahead.
func newPopulater(r *rank) *populater {
	memory, ok := r.dev.(systemMemory)
	if !ok || len(r.kv) == 0 {
		return nil
	}
	var tensors []ops.Tensor
	for _, c := range r.kv {
		tensors = append(tensors, c.K, c.V)
	}
	row := int64(r.cacheCols) * int64(r.cfg.KVDType.Size())
	step := max(1, populateStep/row)
	p := &populater{ahead: step / 2, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.run(tensors, step, row, memory.Populate)
	}()
	return p
}

// reach says that a batch writes to these rows.
func (p *populater) reach(slots []int32) {
	if p == nil || len(slots) == 0 {
		return
	}
	if want := int64(slices.Max(slots)) + 1 + p.ahead; want > p.wanted.Load() {
		p.wanted.Store(want)
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// run populates rows as they are wanted, until close or the system can't.
func (p *populater) run(tensors []ops.Tensor, step, row int64, populate func(a ops.Addr, n int64) error) {
	rows, from := int64(tensors[0].Rows), step
	for range p.wake {
		for from < min(p.wanted.Load(), rows) {
			to := min(from+step, rows)
			var err error
			for _, t := range tensors {
				err = cmp.Or(err, populate(t.Addr+ops.Addr(from*row), (to-from)*row))
			}
			if err != nil {
				return
			}
			from = to
		}
	}
}

// close returns when the memory is left alone.
func (p *populater) close() {
	if p == nil {
		return
	}
	p.wanted.Store(0)
	close(p.wake)
	<-p.done
}

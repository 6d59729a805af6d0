package llm

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// OpTime is the time that the operations of one kind took in one part of the
// forward passes.
type OpTime struct {
	Part  string // "attention", "mlp", "norm", "head", "sampling", "embedding"
	Kind  string // of the operations, as in an op list
	Count int
	Time  time.Duration
}

// OpTimer adds up the times of operations. Measuring them costs a few
// microseconds a forward pass.
type OpTimer struct {
	mu    sync.Mutex
	times map[opKey]*OpTime
}

type opKey struct {
	part ops.Part
	kind ops.Kind
}

// TimeOps starts to measure the operations of this engine; a second call replaces
// the first one's timer, nil ends it. It is an error on a device that can't
// measure, and with several ranks.
func (l *LLM) TimeOps(t *OpTimer) error {
	var add func(*ops.List, []int64)
	if t != nil {
		add = t.add
	}
	if !l.eng.Time(add) {
		return errors.New("llm: operations can be timed on one cpu device only")
	}
	return nil
}

func (t *OpTimer) add(l *ops.List, ns []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times == nil {
		t.times = make(map[opKey]*OpTime)
	}
	for i := range l.Ops {
		key := opKey{l.Part(i), l.Ops[i].Kind}
		sum := t.times[key]
		if sum == nil {
			sum = &OpTime{Part: string(key.part), Kind: key.kind.String()}
			t.times[key] = sum
		}
		sum.Count++
		sum.Time += time.Duration(ns[i])
	}
}

// Take returns what was added up since the last Take, the longest first.
func (t *OpTimer) Take() []OpTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]OpTime, 0, len(t.times))
	for _, sum := range t.times {
		out = append(out, *sum)
	}
	t.times = nil
	slices.SortFunc(out, func(a, b OpTime) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Kind, b.Kind)) })
	return out
}

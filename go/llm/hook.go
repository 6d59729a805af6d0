package llm

import (
	"errors"

	"github.com/minisgl/minisgl/go/internal/core"
)

// BatchInfo describes a batch to a ForwardHook. The slices are the hook's to
// keep.
type BatchInfo struct {
	Prefill   bool     // computes prompts or chunks of them; else one token for each request, and guesses after it with speculation
	UIDs      []uint64 // the requests' numbers
	Extend    []int    // positions computed for each
	InputIDs  []int32  // of all of them, one request after the other
	Positions []int32  // likewise
}

// ForwardHook stands in for each forward pass: it is called with the batch, in
// the engine's goroutine, and must call forward once and return its error. The
// requests of a batch fail when forward did, even if the hook returns nil.
// The engine waits for the hook, Close too.
type ForwardHook func(b BatchInfo, forward func() error) error

// ErrNotForwarded is what the requests of a batch end with when a ForwardHook
// returned without calling forward.
var ErrNotForwarded = errors.New("llm: the forward hook returned without running the batch; it must call the original")

var errForwardedTwice = errors.New("llm: the forward hook ran the batch twice; it must call the original once")

// SetForwardHook lets h see and run every batch from now on; nil takes it away.
// While a hook is set, a batch is planned only when the one before is done.
func (l *LLM) SetForwardHook(h ForwardHook) error {
	reply := make(chan error, 1)
	if !l.send(command{kind: setHook, hook: h, reply: reply}) {
		return ErrClosed
	}
	return <-reply
}

// runHooked runs a batch by way of the hook.
func (l *LLM) runHooked(f *flight) {
	var next []int32
	var ran error // what forward returned; the hook may have dropped it
	called := false
	err := l.hook(describe(f.batch), func() error {
		if called {
			ran = errForwardedTwice
			return ran
		}
		called = true
		if ran = l.eng.Submit(f.batch); ran == nil {
			l.eng.Draw()
			next, ran = l.eng.Wait()
		}
		return ran
	})
	switch {
	case err == nil && !called:
		err = ErrNotForwarded
	case err == nil:
		err = ran
	}
	if err != nil {
		l.fail(f.batch, err)
		return
	}
	l.complete(f, next)
}

func describe(b *core.Batch) BatchInfo {
	info := BatchInfo{Prefill: b.Phase == core.Prefill}
	for _, seq := range b.Seqs {
		info.UIDs = append(info.UIDs, uint64(seq.Req.UID))
		info.Extend = append(info.Extend, seq.ExtendLen())
		for p := seq.Start; p < seq.End; p++ {
			info.InputIDs = append(info.InputIDs, seq.Input(p))
			info.Positions = append(info.Positions, int32(p))
		}
	}
	return info
}

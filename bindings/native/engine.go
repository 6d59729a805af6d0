package native

import (
	"context"

	"github.com/minisgl/minisgl/go/llm"
)

// engine is a loaded model and what its hooked jobs share.
type engine struct {
	*llm.LLM
	closing context.Context
	release context.CancelFunc // ends closing
	hooked  chan struct{}      // full while a hooked job runs
}

func newEngine(e *llm.LLM) *engine {
	closing, release := context.WithCancel(context.Background())
	return &engine{LLM: e, closing: closing, release: release, hooked: make(chan struct{}, 1)}
}

// close frees the engine. Hooks are released first: the engine could not end
// while a batch waits for a caller.
func (e *engine) close() error {
	e.release()
	return e.Close()
}

// generateHooked is Generate with h in the place of each forward pass, after the
// hooked jobs that came before.
func (e *engine) generateHooked(ctx context.Context, h *hook, reqs []llm.Request, progress func(llm.Progress)) ([]llm.Output, error) {
	if err := e.enter(ctx, h); err != nil {
		return nil, err
	}
	defer func() { <-e.hooked }()
	off, release := context.WithCancel(ctx)
	defer context.AfterFunc(e.closing, release)()
	defer func() {
		release()
		_ = e.SetForwardHook(nil) // fails on a closed engine only
	}()
	err := e.SetForwardHook(func(b llm.BatchInfo, run func() error) error { return h.forward(off.Done(), b, run) })
	if err != nil {
		return nil, err
	}
	return e.Generate(ctx, reqs, progress)
}

// enter waits until the caller is there and no other hooked job runs.
func (e *engine) enter(ctx context.Context, h *hook) error {
	attached := h.attached
	var enter chan<- struct{}
	for {
		select {
		case <-attached:
			attached, enter = nil, e.hooked
		case enter <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-e.closing.Done():
			return llm.ErrClosed
		}
	}
}

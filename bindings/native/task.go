package native

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/minisgl/minisgl/go/llm"
)

// task is a running or ended job.
type task struct {
	cancel   context.CancelFunc
	done     chan struct{} // closed when result and err are set
	progress atomic.Pointer[llm.Progress]
	release  func(result any) // frees a result that nobody takes; may be nil
	hook     *hook            // of GenerateHooked; nil in other jobs

	mu        sync.Mutex
	forgotten bool
	result    any
	err       error
}

// status is what Wait returns.
type status struct {
	Done             bool `json:"done"`
	Requests         int  `json:"requests"`
	DoneRequests     int  `json:"done_requests"`
	PromptTokens     int  `json:"prompt_tokens"`
	CompletionTokens int  `json:"completion_tokens"`
}

// start runs a job on a goroutine of its own and returns its number. If the job
// is forgotten, release gets the result; it may be nil.
func start(run func(context.Context, *task) (any, error), release func(result any)) int64 {
	return startTask(&task{release: release}, run)
}

func startTask(t *task, run func(context.Context, *task) (any, error)) int64 {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.done = cancel, make(chan struct{})
	id := tasks.add(t)
	go func() {
		defer cancel()
		t.finish(protect(ctx, t, run))
	}()
	return id
}

// protect is run, with a panic as an error.
func protect(ctx context.Context, t *task, run func(context.Context, *task) (any, error)) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, panicError(p)
		}
	}()
	return run(ctx, t)
}

func (t *task) finish(result any, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result, t.err = result, err
	close(t.done)
	if t.forgotten {
		t.drop()
	}
}

// forget cancels the job and frees its result, now or when it ends.
func (t *task) forget() {
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgotten = true
	if t.ended() {
		t.drop()
	}
}

func (t *task) drop() {
	if t.release != nil && t.err == nil {
		t.release(t.result)
	}
}

func (t *task) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *task) setProgress(p llm.Progress) { t.progress.Store(&p) }

func (t *task) status() status {
	s := status{Done: t.ended()}
	if p := t.progress.Load(); p != nil {
		s.Requests, s.DoneRequests = p.Requests, p.DoneRequests
		s.PromptTokens, s.CompletionTokens = p.PromptTokens, p.CompletionTokens
	}
	return s
}

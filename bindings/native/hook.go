package native

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// GenerateHooked is Generate with the caller in the place of each forward pass.
// Until the job has ended, the caller repeats: NextBatch, RunBatch, EndBatch.
// The job begins with its first NextBatch, and one such job of an engine runs
// at a time. When it is cancelled or the engine is closed, batches run without
// the caller, so the engine never hangs.
func GenerateHooked(engine int64, requests string) (job int64, err error) {
	defer guard(&err)
	return startGenerate(engine, requests, newHook())
}

// NextBatch waits for the next batch of a hooked job and describes it (see
// batch). The result is empty if there is none after timeoutMs milliseconds, or
// if the job has ended.
func NextBatch(job, timeoutMs int64) (out string, err error) {
	defer guard(&err)
	t, err := hookedTaskOf(job)
	if err != nil {
		return "", err
	}
	t.hook.attach()
	select {
	case next := <-t.hook.turns:
		t.hook.current.Store(next)
		return encode(next.batch)
	case <-t.done:
	case <-time.After(time.Duration(timeoutMs) * time.Millisecond):
	}
	return "", nil
}

// RunBatch runs the batch that NextBatch described, which must happen once.
func RunBatch(job, number int64) (none bool, err error) {
	defer guard(&err)
	t, err := turnOf(job, number)
	if err != nil {
		return none, err
	}
	return none, t.ask(t.runs)
}

// EndBatch lets the engine go on after a batch. It is an error if the batch was
// not run, or not rightly; its requests have then failed.
func EndBatch(job, number int64) (none bool, err error) {
	defer guard(&err)
	t, err := turnOf(job, number)
	if err != nil {
		return none, err
	}
	return none, t.ask(t.ends)
}

// batch is llm.BatchInfo with a number, by which RunBatch and EndBatch know it.
type batch struct {
	Number    int64    `json:"number"`
	Prefill   bool     `json:"prefill"`
	UIDs      []uint64 `json:"uids"`
	Extend    []int    `json:"extend"`
	InputIDs  []int32  `json:"input_ids"`
	Positions []int32  `json:"positions"`
}

// hook passes a job's batches from the engine's goroutine to the caller's
// thread.
type hook struct {
	attached   chan struct{} // closed when the caller has shown that it knows the job
	attachOnce sync.Once
	turns      chan *turn
	current    atomic.Pointer[turn] // the latest that the caller has taken
	count      int64                // the engine's goroutine's
}

func newHook() *hook {
	return &hook{attached: make(chan struct{}), turns: make(chan *turn)}
}

func (h *hook) attach() { h.attachOnce.Do(func() { close(h.attached) }) }

// forward is a llm.ForwardHook but for off, which ends the caller's part.
func (h *hook) forward(off <-chan struct{}, b llm.BatchInfo, run func() error) error {
	h.count++
	t := &turn{
		batch: batch{h.count, b.Prefill, b.UIDs, b.Extend, b.InputIDs, b.Positions},
		runs:  make(chan chan<- error), ends: make(chan chan<- error), over: make(chan struct{}),
	}
	defer close(t.over)
	select {
	case h.turns <- t:
		return t.serve(run, off)
	case <-off:
		return run()
	}
}

// turn is one batch in the caller's hands. The engine's goroutine serves it.
type turn struct {
	batch      batch
	runs, ends chan chan<- error // the caller's demands, each with room for its answer
	over       chan struct{}     // closed when nobody serves any more
}

// serve does what the caller demands, up to the end of the turn; after off it
// does the rest itself.
func (t *turn) serve(run func() error, off <-chan struct{}) error {
	result := llm.ErrNotForwarded
	ran := false
	for {
		select {
		case answer := <-t.runs:
			err := run()
			if !ran || result == nil {
				result = err
			}
			ran = true
			answer <- err
		case answer := <-t.ends:
			answer <- result
			return result
		case <-off:
			if ran {
				return result
			}
			return run()
		}
	}
}

// ask makes a demand and waits for its answer.
func (t *turn) ask(demands chan<- chan<- error) error {
	answer := make(chan error, 1)
	select {
	case demands <- answer:
		return <-answer
	case <-t.over:
		return batchIsOver(t.batch.Number)
	}
}

func batchIsOver(number int64) error {
	return fail(kindClosed, "batch %d is over: it has ended, its call was cancelled, or the engine was shut down", number)
}

func hookedTaskOf(job int64) (*task, error) {
	t, err := taskOf(job)
	if err != nil {
		return nil, err
	}
	if t.hook == nil {
		return nil, fail(kindInternal, "job %d has no hook", job)
	}
	return t, nil
}

func turnOf(job, number int64) (*turn, error) {
	task, err := hookedTaskOf(job)
	if err != nil {
		return nil, err
	}
	t := task.hook.current.Load()
	if t == nil || t.batch.Number != number {
		return nil, batchIsOver(number)
	}
	return t, nil
}

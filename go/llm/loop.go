package llm

import (
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/scheduler"
)

// command is what other goroutines ask of the loop.
type command struct {
	kind  commandKind
	reqs  []*core.Req // of addReqs
	sink  sink        // where their outputs go
	uids  []core.UID  // of abortReqs and stopReq
	usage Usage       // of stopReq
	hook  ForwardHook // of setHook
	count chan int    // of countLive and flushCache
	reply chan error  // of checkIntegrity and setHook
}

type commandKind uint8

const (
	addReqs commandKind = iota
	abortReqs
	stopReq // a stop string ended it
	abortAll
	countLive
	checkIntegrity
	setHook
	flushCache
	quit
)

// sink takes a request's outputs. It is called by the loop, so it must not
// block.
type sink interface {
	push(out output)
}

// output is what a sink is told of a request.
type output struct {
	scheduler.Output
	err    error        // why, if Finish is FinishError
	scores []core.Score // log-probabilities that have come since the last output
	begun  time.Time    // when the request's first batch was planned; zero if none was
}

// request is what the loop remembers of a request that has not ended.
type request struct {
	req    *core.Req
	sink   sink
	scores []core.Score // that wait for its next output
	begun  time.Time
}

// send gives the loop a command between two batches, or reports that the loop
// has ended.
func (l *LLM) send(c command) bool {
	select {
	case l.commands <- c:
		return true
	case <-l.stopped:
		return false
	}
}

// loop is the engine's only goroutine: it drives the scheduler and runs its
// batches. While one batch runs, the next is planned, recorded and submitted; only
// its sampling waits, if grammars have a say in it, until the tokens before are
// known.
func (l *LLM) loop() {
	var flying *flight
	for l.obey(flying) {
		if flying != nil && l.hook != nil {
			l.finish(flying)
			flying = nil
		}
		next := l.start()
		if flying != nil {
			l.finish(flying)
		}
		l.eng.Draw()
		if next != nil && l.cfg.DisableOverlap {
			l.finish(next)
			next = nil
		}
		flying = next
		l.publish()
		l.report(time.Now())
	}
	if flying != nil {
		l.finish(flying)
	}
	l.end()
}

// obey carries out the commands that are there, and waits for one when there is
// nothing else to do. It returns false when the engine is to end.
func (l *LLM) obey(flying *flight) bool {
	if flying == nil && l.sched.Idle() && !l.do(<-l.commands) {
		return false
	}
	for {
		select {
		case c := <-l.commands:
			if !l.do(c) {
				return false
			}
		default:
			return true
		}
	}
}

func (l *LLM) do(c command) bool {
	switch c.kind {
	case addReqs:
		for _, r := range c.reqs {
			l.sinks[r.UID] = &request{req: r, sink: c.sink}
			if err := l.sched.Add(r); err != nil {
				l.deliver(output{Output: scheduler.Output{Req: r, Finish: core.FinishError}, err: err})
			}
		}
	case abortReqs:
		for _, uid := range c.uids {
			l.abort(uid)
		}
	case stopReq:
		l.stop(c.uids[0], c.usage)
	case abortAll:
		l.abortAll()
	case countLive:
		c.count <- len(l.sinks)
	case checkIntegrity:
		c.reply <- l.sched.CheckIntegrity()
	case setHook:
		l.hook = c.hook
		c.reply <- nil
	case flushCache:
		c.count <- l.sched.Reset()
	case quit:
		return false
	}
	return true
}

// flight is a batch that the device is running.
type flight struct {
	batch *core.Batch
	start time.Time
}

// start plans and submits a batch; nil if none is in flight after that.
func (l *LLM) start() *flight {
	l.sched.SetMaxExtendTokens(l.MaxExtendTokens())
	b := l.sched.Next()
	if b == nil {
		return nil
	}
	f := &flight{batch: b, start: time.Now()}
	l.begin(f)
	if l.hook != nil {
		l.runHooked(f)
		return nil
	}
	if err := l.eng.Submit(b); err != nil {
		l.fail(b, err)
		return nil
	}
	return f
}

// begin notes when requests leave the queue.
func (l *LLM) begin(f *flight) {
	if f.batch.Phase == core.Decode {
		return
	}
	for _, seq := range f.batch.Seqs {
		if e, ok := l.sinks[seq.Req.UID]; ok && e.begun.IsZero() {
			e.begun = f.start
		}
	}
}

// finish waits for a batch and hands out what it gave.
func (l *LLM) finish(f *flight) {
	next, err := l.eng.Wait()
	if err != nil {
		l.fail(f.batch, err)
		return
	}
	l.complete(f, next)
}

// complete hands out what a batch gave.
func (l *LLM) complete(f *flight, next []int32) {
	l.count(f)
	for _, s := range l.eng.Scores() {
		if e, ok := l.sinks[s.UID]; ok {
			e.scores = append(e.scores, s)
		}
	}
	for _, failed := range l.eng.Failures() {
		l.failOne(failed.UID, failed.Err)
	}
	outs := l.sched.Complete(f.batch, next)
	l.countTokens(outs)
	for _, out := range outs {
		l.deliver(output{Output: out})
	}
}

// fail ends the requests of a batch that could not run.
func (l *LLM) fail(b *core.Batch, err error) {
	l.cfg.Logger.Error("a batch failed", "error", err)
	for _, out := range l.sched.Fail(b) {
		l.deliver(output{Output: out, err: err})
	}
}

// failOne ends one request of a batch that has run.
func (l *LLM) failOne(uid core.UID, err error) {
	if e, ok := l.sinks[uid]; ok && l.sched.Abort(uid) {
		l.deliver(output{Output: scheduler.Output{Req: e.req, Finish: core.FinishError}, err: err})
	}
}

// deliver passes an output to its request's sink and forgets the request when it
// has ended.
func (l *LLM) deliver(out output) {
	uid := out.Req.UID
	e, ok := l.sinks[uid]
	if !ok {
		return
	}
	out.scores, out.begun = e.scores, e.begun
	e.scores = nil
	if out.Finish != "" {
		l.forget(e)
		l.countFinish(out.Output)
	}
	e.sink.push(out)
}

// abort ends a request that is still there.
func (l *LLM) abort(uid core.UID) {
	if e, ok := l.sinks[uid]; ok && l.sched.Abort(uid) {
		l.forget(e)
		out := scheduler.Output{Req: &core.Req{UID: uid}, Finish: core.FinishAbort}
		l.countFinish(out)
		e.sink.push(output{Output: out, begun: e.begun})
	}
}

// stop ends a request whose reader has all that it wanted: that is no abort.
func (l *LLM) stop(uid core.UID, usage Usage) {
	if e, ok := l.sinks[uid]; ok && l.sched.Abort(uid) {
		l.forget(e)
		l.countFinish(scheduler.Output{Req: &core.Req{UID: uid, CachedLen: usage.CachedTokens}, Finish: core.FinishStop})
	}
}

// forget drops a request that has ended, and what it holds beside the scheduler's.
func (l *LLM) forget(e *request) {
	delete(l.sinks, e.req.UID)
	if e.req.Matcher != nil {
		e.req.Matcher.Close()
	}
}

func (l *LLM) abortAll() {
	for uid := range l.sinks {
		l.abort(uid)
	}
}

// end is the loop's last act: every request gets its end. A command that comes
// later is refused by send.
func (l *LLM) end() {
	l.abortAll()
	l.publish()
	close(l.stopped)
}

// Package scheduler decides which requests run, and which tokens each forward
// pass computes. It is a pure state machine: no goroutine, clock, device or
// tokenizer inside. One loop drives it:
//
//	s.Add(req)            a request arrives
//	b := s.Next()         the next batch, or nil when there is nothing to do
//	outs := s.Complete(b, tokens)   the batch has run and gave these tokens
//	s.Abort(uid)          the caller gave up; allowed at any moment
//
// Next may be called again before Complete: then the next batch is planned on
// the tokens that the one in flight will give, which only the device knows yet.
// A request's pages and slot are released when no batch in flight holds it.
package scheduler

import (
	"fmt"
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
)

// Config bounds the scheduler. All fields are required, EOS excepted.
type Config struct {
	PageSize        int     // tokens of a KV page
	NumPages        int     // pages there are
	MaxRunning      int     // requests that run at once; slots are 0 … MaxRunning-1
	MaxExtendTokens int     // tokens of a prefill batch
	MaxSeqLen       int     // prompt and output of a request together
	EOS             []int32 // tokens that end a sequence
}

// Output is what Complete reports of one request: a token, the end, or both.
type Output struct {
	Req      *core.Req
	Token    int32
	HasToken bool
	Finish   core.FinishReason
}

// Scheduler is the state machine. It is not safe for concurrent use.
type Scheduler struct {
	cfg     Config
	pages   pages
	waiting []*entry // in order of arrival
	running []*entry // in order of admission
	byUID   map[core.UID]*entry
	slots   []int // free ones
	spare   []*core.Batch
	outputs []Output
}

// entry is a request's state in the scheduler.
type entry struct {
	req      *core.Req
	handle   kvcache.Handle
	inFlight int  // batches submitted and not completed that hold it
	done     bool // ended; waits only for the batches in flight
}

// New returns an idle scheduler.
func New(cfg Config, cache kvcache.PrefixCache) *Scheduler {
	s := &Scheduler{
		cfg:   cfg,
		pages: pages{pool: kvcache.NewPool(cfg.NumPages), cache: cache, size: cfg.PageSize},
		byUID: make(map[core.UID]*entry),
	}
	for slot := cfg.MaxRunning - 1; slot >= 0; slot-- {
		s.slots = append(s.slots, slot)
	}
	return s
}

// Add queues a request. A request that could never run is refused with an
// InvalidError; one whose output could outgrow the context or the pool is cut to
// what fits.
func (s *Scheduler) Add(r *core.Req) error {
	if r.PromptLen < 1 {
		return core.Invalid("prompt", "is empty; it needs at least one token")
	}
	capacity := min(s.cfg.MaxSeqLen, s.cfg.NumPages*s.cfg.PageSize)
	if r.PromptLen >= capacity {
		return core.Invalid("prompt", "has %d tokens, but prompt and output together may have %d", r.PromptLen, capacity)
	}
	if _, ok := s.byUID[r.UID]; ok {
		return fmt.Errorf("scheduler: request %d is already there", r.UID)
	}
	r.MaxLen = capacity
	if r.Params.MaxTokens < capacity-r.PromptLen {
		r.MaxLen = r.PromptLen + r.Params.MaxTokens
	}
	r.Slot = -1
	e := &entry{req: r}
	s.byUID[r.UID] = e
	s.waiting = append(s.waiting, e)
	return nil
}

// Abort ends a request, wherever it is. It reports whether the request was still
// there; its end is the caller's to announce.
func (s *Scheduler) Abort(uid core.UID) bool {
	e, ok := s.byUID[uid]
	if !ok || e.done {
		return false
	}
	if i := slices.Index(s.waiting, e); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.finish(e)
	return true
}

// Next plans a batch: prompts first, else one token for each running request. It
// returns nil when there is nothing to compute. The batch is valid until its
// Complete or Fail.
func (s *Scheduler) Next() *core.Batch {
	b := s.takeBatch()
	if s.planPrefill(b); len(b.Seqs) == 0 {
		s.planDecode(b)
	}
	if len(b.Seqs) == 0 {
		s.spare = append(s.spare, b)
		return nil
	}
	return b
}

// Complete takes the tokens that a batch gave: one for each Seq with Sample, in
// order. Batches complete in the order of Next. The result is valid until the
// next call.
func (s *Scheduler) Complete(b *core.Batch, tokens []int32) []Output {
	s.outputs = s.outputs[:0]
	for _, seq := range b.Seqs {
		e := s.byUID[seq.Req.UID]
		e.inFlight--
		if seq.Sample {
			token := tokens[0]
			tokens = tokens[1:]
			if !e.done {
				s.accept(e, token)
			}
		}
		s.release(e)
	}
	s.spare = append(s.spare, b)
	return s.outputs
}

// Fail ends the requests of a batch that the device could not run.
func (s *Scheduler) Fail(b *core.Batch) []Output {
	s.outputs = s.outputs[:0]
	for _, seq := range b.Seqs {
		e := s.byUID[seq.Req.UID]
		e.inFlight--
		if !e.done {
			s.outputs = append(s.outputs, Output{Req: e.req, Finish: core.FinishError})
			s.finish(e)
		}
		s.release(e)
	}
	s.spare = append(s.spare, b)
	return s.outputs
}

// accept appends a sampled token to its request and ends the request if it was
// the last one.
func (s *Scheduler) accept(e *entry, token int32) {
	r := e.req
	if !r.Params.IgnoreEOS && slices.Contains(s.cfg.EOS, token) {
		s.outputs = append(s.outputs, Output{Req: r, Finish: core.FinishStop})
		s.finish(e)
		return
	}
	r.IDs = append(r.IDs, token)
	out := Output{Req: r, Token: token, HasToken: true}
	if r.RemainLen() == 0 {
		out.Finish = core.FinishLength
		s.finish(e)
	}
	s.outputs = append(s.outputs, out)
}

// finish marks a request as ended and releases what it holds, at once if no
// batch in flight uses it.
func (s *Scheduler) finish(e *entry) {
	e.done = true
	s.release(e)
}

// release gives back the slot and the pages of a request that has ended. It is
// called whenever one of its two conditions may have become true.
func (s *Scheduler) release(e *entry) {
	if !e.done || e.inFlight > 0 {
		return
	}
	if _, ok := s.byUID[e.req.UID]; !ok {
		return
	}
	delete(s.byUID, e.req.UID)
	if i := slices.Index(s.running, e); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
		s.slots = append(s.slots, e.req.Slot)
	}
	s.pages.release(e)
}

func (s *Scheduler) takeBatch() *core.Batch {
	n := len(s.spare)
	if n == 0 {
		return &core.Batch{}
	}
	b := s.spare[n-1]
	s.spare = s.spare[:n-1]
	*b = core.Batch{Seqs: b.Seqs[:0]}
	return b
}

// add appends positions [start, end) of a request to a batch and counts them as
// computed.
func (s *Scheduler) add(b *core.Batch, e *entry, end int, sample bool) {
	b.Seqs = append(b.Seqs, core.Seq{Req: e.req, Start: e.req.DeviceLen, End: end, Sample: sample})
	b.Tokens += end - e.req.DeviceLen
	e.req.DeviceLen = end
	e.inFlight++
}

// Waiting and Running are the numbers of requests in either state.
func (s *Scheduler) Waiting() int { return len(s.waiting) }
func (s *Scheduler) Running() int { return len(s.running) }

// Idle reports whether no request is left.
func (s *Scheduler) Idle() bool { return len(s.byUID) == 0 }

// FreePages is the number of pages that could be had now.
func (s *Scheduler) FreePages() int { return s.pages.available() }

// CheckIntegrity proves that each page and each slot has exactly one owner.
func (s *Scheduler) CheckIntegrity() error {
	owners := kvcache.NewOwners(s.cfg.NumPages)
	slots := slices.Clone(s.slots)
	for _, e := range s.running {
		slots = append(slots, e.req.Slot)
		own := owners.Own(fmt.Sprintf("request %d", e.req.UID))
		for _, p := range e.req.Pages[len(e.handle.Pages):] {
			own(p)
		}
		if have := len(e.req.Pages) * s.cfg.PageSize; have < e.req.DeviceLen {
			return fmt.Errorf("scheduler: request %d computed %d positions, but has pages for %d", e.req.UID, e.req.DeviceLen, have)
		}
	}
	if err := s.pages.check(owners); err != nil {
		return err
	}
	slices.Sort(slots)
	for i, slot := range slots {
		if slot != i {
			return fmt.Errorf("scheduler: slots %v have not one owner each", slots)
		}
	}
	return nil
}

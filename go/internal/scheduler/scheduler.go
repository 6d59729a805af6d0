// Package scheduler decides which requests run, and which tokens each forward
// pass computes. It is a pure state machine: no goroutine, clock, device or
// tokenizer inside. One loop drives it:
//
//	s.Add(req)                      a request arrives
//	b := s.Next()                   the next batch, or nil when there is nothing to do
//	outs := s.Complete(b, tokens)   the batch has run and gave these tokens
//	s.Abort(uid)                    the caller gave up; allowed at any moment
//
// Next may be called again before Complete: then the next batch is planned on
// the tokens that the one in flight will give, which only the device knows yet.
// Batches run in the order of Next, so pages that one batch still reads may be
// given to a request of the next; a request that has ended gives up its pages and
// its slot when no batch in flight holds it.
package scheduler

import (
	"fmt"
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
)

// Config bounds the scheduler. The numbers are required, the rest may be zero.
type Config struct {
	PageSize        int     // tokens of a KV page
	NumPages        int     // pages there are
	MaxRunning      int     // requests that run at once; slots are 0 … MaxRunning-1
	MaxExtendTokens int     // prompt tokens of a batch
	MaxSeqLen       int     // prompt and output of a request together
	EOS             []int32 // tokens that end a sequence

	Order        Order // which waiting request is tried first
	Conservative bool  // reserve pages for the whole output of a request; else for the share that outputs use on average
	MixedTokens  int   // prompt tokens that may run beside decoding requests in one batch; 0: prompts run alone, first
	JumpForward  bool  // tokens that a grammar forces are appended without being sampled
	Speculation  Speculation
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
	cfg         Config
	pages       pages
	share       share
	waiting     []*entry // in order of arrival; preempted ones before all
	running     []*entry // in order of UID
	byUID       map[core.UID]*entry
	slots       []int // free ones
	stuck       bool  // no waiting request fits until something is released or added
	preemptions int64
	spare       []*core.Batch
	outputs     []Output
	order       []*entry // scratch of candidates

	verifying         *core.Batch // the batch in flight that has guesses
	drafts            []draft     // scratch
	drafted, accepted int64       // guesses made; those that were right
	jumped            int64       // tokens appended without being sampled
}

// entry is a request's state in the scheduler.
type entry struct {
	req       *core.Req
	handle    kvcache.Handle
	target    int         // positions to compute before decoding: the prompt, after a preemption and a jump what was generated, too
	computed  int         // positions whose batch has completed
	planned   *core.Batch // the latest batch that holds it
	inFlight  int         // batches submitted and not completed that hold it
	running   bool        // has a slot
	done      bool        // ended; waits only for the batches in flight
	preempted bool        // at least once
	passed    int         // how often a later request was admitted before it
	scored    int         // positions planned for whose next prompt tokens no log-probability is wanted any more
	drafter   *drafter    // nil until guesses are first thought of
	drafts    int         // guesses that it is to get in the batch that is being planned
}

// New returns an idle scheduler.
func New(cfg Config, cache kvcache.PrefixCache) *Scheduler {
	s := &Scheduler{
		cfg:   cfg,
		pages: pages{pool: kvcache.NewPool(cfg.NumPages), cache: cache, size: cfg.PageSize},
		share: newShare(cfg.Conservative),
		byUID: make(map[core.UID]*entry),
	}
	for slot := cfg.MaxRunning - 1; slot >= 0; slot-- {
		s.slots = append(s.slots, slot)
	}
	return s
}

// SetMaxExtendTokens changes Config.MaxExtendTokens for the batches to come; n is
// at least 1.
func (s *Scheduler) SetMaxExtendTokens(n int) { s.cfg.MaxExtendTokens = n }

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
	e := &entry{req: r, target: r.PromptLen}
	if from := r.Params.PromptLogprobs; from != nil {
		e.scored = *from
	}
	s.byUID[r.UID] = e
	s.waiting = append(s.waiting, e)
	s.stuck = false
	return nil
}

// Abort ends a request, wherever it is. It reports whether the request was still
// there; its end is the caller's to announce.
func (s *Scheduler) Abort(uid core.UID) bool {
	e, ok := s.byUID[uid]
	if !ok || e.done {
		return false
	}
	s.finish(e)
	return true
}

// Next plans a batch. It returns nil when there is nothing to compute now. The
// batch is valid until its Complete or Fail.
func (s *Scheduler) Next() *core.Batch {
	b := s.takeBatch()
	if s.cfg.MixedTokens > 0 {
		if s.planDecode(b) {
			s.planPrefill(b)
		}
	} else if s.planPrefill(b); len(b.Seqs) == 0 {
		s.planDecode(b)
	}
	if len(b.Seqs) == 0 {
		s.spare = append(s.spare, b)
		return nil
	}
	return b
}

// finish marks a request as ended and releases what it holds, at once if no
// batch in flight uses it.
func (s *Scheduler) finish(e *entry) {
	e.done = true
	if i := slices.Index(s.waiting, e); !e.running && i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
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
	if e.running {
		s.leave(e)
	}
}

// leave takes a request out of the running ones, with its slot and its pages.
func (s *Scheduler) leave(e *entry) {
	i := slices.Index(s.running, e)
	s.running = slices.Delete(s.running, i, i+1)
	s.slots = append(s.slots, e.req.Slot)
	s.pages.release(e)
	e.running = false
	e.computed = 0
	s.stuck = false
}

func (s *Scheduler) takeBatch() *core.Batch {
	n := len(s.spare)
	if n == 0 {
		return &core.Batch{Phase: core.Decode}
	}
	b := s.spare[n-1]
	s.spare = s.spare[:n-1]
	*b = core.Batch{Phase: core.Decode, Seqs: b.Seqs[:0]}
	return b
}

// add appends positions up to end of a request to a batch, the last ones with
// guesses as their inputs, and counts them as planned.
func (s *Scheduler) add(b *core.Batch, e *entry, end int, sample bool, guesses []int32) {
	b.Seqs = append(b.Seqs, core.Seq{Req: e.req, Start: e.req.DeviceLen, End: end, Sample: sample, ScoreFrom: e.scored, Draft: guesses})
	e.scored = max(e.scored, end)
	b.Tokens += end - e.req.DeviceLen
	e.req.DeviceLen = end
	e.planned = b
	e.inFlight++
}

// Reset drops the prefix cache's pages that nobody uses and returns their
// number.
func (s *Scheduler) Reset() int {
	s.stuck = false
	return s.pages.reset()
}

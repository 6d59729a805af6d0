package scheduler

import (
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
)

// Complete takes the tokens that a batch gave, for each Seq as many as Samples, in
// order. Batches complete in the order of Next. The result is valid until the
// next call.
func (s *Scheduler) Complete(b *core.Batch, tokens []int32) []Output {
	s.outputs = s.outputs[:0]
	for _, seq := range b.Seqs {
		e := s.byUID[seq.Req.UID]
		e.inFlight--
		n := seq.Samples()
		switch s.advance(e, seq); {
		case e.done:
		case n > 1:
			s.verify(e, seq, tokens[:n])
		case n == 1 && seq.End == len(e.req.IDs): // else the token came by a jump
			s.accept(e, tokens[0])
			s.jump(e)
		}
		tokens = tokens[n:]
		s.release(e)
	}
	s.retire(b)
	return s.outputs
}

// retire takes back a batch that is no longer in flight.
func (s *Scheduler) retire(b *core.Batch) {
	if s.verifying == b {
		s.verifying = nil
	}
	s.spare = append(s.spare, b)
}

// advance notes that positions are computed, and offers those of a prompt to the
// prefix cache at once. A request that was preempted meanwhile has lost them.
func (s *Scheduler) advance(e *entry, seq core.Seq) {
	if !e.running {
		s.stuck = false
		return
	}
	e.computed = seq.End - len(seq.Draft)
	if seq.End <= e.target && !e.done {
		s.pages.publish(e)
		s.stuck = false
	}
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
	s.retire(b)
	return s.outputs
}

// accept appends a sampled token to its request and ends the request if it was
// the last one.
func (s *Scheduler) accept(e *entry, token int32) {
	r := e.req
	if e.drafter != nil {
		e.drafter.observe(len(r.IDs), token)
	}
	if (!r.Params.IgnoreEOS || r.Matcher != nil) && slices.Contains(s.cfg.EOS, token) {
		s.outputs = append(s.outputs, Output{Req: r, Finish: core.FinishStop})
		s.share.learn(r)
		s.finish(e)
		return
	}
	r.IDs = append(r.IDs, token)
	out := Output{Req: r, Token: token, HasToken: true}
	if r.RemainLen() == 0 {
		out.Finish = core.FinishLength
		s.share.learn(r)
		s.finish(e)
	}
	s.outputs = append(s.outputs, out)
}

package scheduler

import "github.com/minisgl/minisgl/go/internal/core"

// maxJump bounds the tokens that are appended at once: the loop waits while the
// grammar finds them.
const maxJump = 64

// jump appends the tokens that may follow a request's last one alone, by its
// grammar: sampling would give each with probability 1, so nothing is sampled, and
// they are computed together, as a prompt's chunks are. A batch in flight may be
// about to sample the first of them; Complete then drops what it gives.
func (s *Scheduler) jump(e *entry) {
	r := e.req
	if !s.jumps(r) {
		return
	}
	known := len(r.IDs)
	for !e.done && len(r.IDs) < known+maxJump {
		token, ok := r.Matcher.Forced(r.IDs[r.PromptLen:])
		if !ok {
			break
		}
		s.accept(e, token)
	}
	s.jumped += int64(len(r.IDs) - known)
	if !e.done && len(r.IDs) > r.DeviceLen+1 { // one alone decodes as ever
		e.target = len(r.IDs)
	}
}

// jumps reports whether a request's forced tokens may be appended: not if their
// log-probabilities are wanted, for which each must be drawn.
func (s *Scheduler) jumps(r *core.Req) bool {
	return s.cfg.JumpForward && r.Matcher != nil && !r.Params.Logprobs
}

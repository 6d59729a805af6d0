package scheduler

import (
	"cmp"
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/ngram"
)

// Speculation says how decoding requests may be given guesses of their next
// tokens, which one forward pass verifies: a guess that is the token that was
// sampled in its place gives the next position's token, too.
type Speculation struct {
	MaxDraft int  // guesses in a batch at most, of one request or of several; 0: none
	Always   bool // guess whatever can be guessed, also where it costs more than it gives

	// StepCost[n-1] is what a decoding batch of n positions costs, in any unit, until
	// Took corrects it. Larger batches get no guesses.
	StepCost []float64
}

const (
	firstRight = 0.5      // before anything is known of a request
	rightStep  = 1.0 / 8  // weight of one guess
	costStep   = 1.0 / 16 // weight of one step's cost
	minGain    = 1.15     // of tokens per time; what is less is not worth a plan that waits for the last token
)

// drafter guesses one request's next tokens.
type drafter struct {
	index *ngram.Index
	guess []int32 // of the tokens from position known on
	known int
	right float64 // how often guesses were right lately
}

// observe compares the token at a position with what was guessed.
func (d *drafter) observe(position int, token int32) {
	i := position - d.known
	if i < 0 || i >= len(d.guess) {
		return
	}
	if d.guess[i] == token {
		d.right += (1 - d.right) * rightStep
		return
	}
	d.right -= d.right * rightStep
	d.guess = d.guess[:0]
}

// renew guesses n tokens behind the known ones, unless that is done.
func (d *drafter) renew(ids []int32, n int) {
	if d.known == len(ids) {
		return
	}
	d.index.Extend(ids)
	d.guess, d.known = d.index.Guess(d.guess[:0], ids, n), len(ids)
}

// speculates reports whether a request may be given guesses. Penalties and the
// masks of a grammar would depend on the guesses before each of them, and
// log-probabilities would be taken of tokens that don't count.
func speculates(r *core.Req) bool {
	p := r.Params
	return r.Matcher == nil && !p.Logprobs && p.PresencePenalty == 0 && p.FrequencyPenalty == 0 && p.RepetitionPenalty == 1
}

// draft is a guess that could be made: worth is the probability that it counts,
// which is that it and those before it are right.
type draft struct {
	e     *entry
	worth float64
}

// speculate decides how many guesses each request gets in the next batch. It
// reports false if it is better to wait for the batch in flight: guesses need a
// request's last token, so those that pay don't run ahead of it.
func (s *Scheduler) speculate() bool {
	if s.cfg.Speculation.MaxDraft == 0 {
		return true
	}
	if s.verifying != nil {
		return false // where its requests go on is not known
	}
	decoding := 0
	for _, e := range s.running {
		e.drafts = 0
		if s.decodes(e) {
			decoding++
		}
	}
	s.drafts = s.drafts[:0]
	if decoding < len(s.cfg.Speculation.StepCost) || s.cfg.Speculation.Always {
		for _, e := range s.running {
			if s.decodes(e) && speculates(e.req) {
				s.offer(e)
			}
		}
	}
	slices.SortStableFunc(s.drafts, func(a, b draft) int { return cmp.Compare(b.worth, a.worth) })
	for _, d := range s.drafts[:s.cfg.Speculation.choose(decoding, s.drafts)] {
		if d.e.inFlight > 0 {
			return false
		}
		d.e.drafts++
	}
	return true
}

// offer appends the guesses that a request could be given. While its last token
// is on its way there are none yet; that token must then be right as well.
func (s *Scheduler) offer(e *entry) {
	r := e.req
	if e.drafter == nil {
		e.drafter = &drafter{index: ngram.New(r.MaxLen), right: firstRight}
	}
	d, most, worth := e.drafter, s.cfg.Speculation.MaxDraft, 1.0
	d.renew(r.IDs, most)
	if e.inFlight > 0 {
		worth = d.right
	} else {
		most = min(most, len(d.guess))
	}
	for range min(most, r.MaxLen-2-r.DeviceLen) {
		worth *= d.right
		s.drafts = append(s.drafts, draft{e, worth})
	}
}

// choose returns how many of the guesses, the best first, give the most tokens
// per cost beside n requests: 0 if that is not clearly more than without any.
func (c Speculation) choose(n int, drafts []draft) int {
	most := min(len(drafts), c.MaxDraft)
	if c.Always || most == 0 {
		return most
	}
	best, tokens := 0, float64(n)
	rate := minGain * tokens / c.StepCost[n-1]
	for i, d := range drafts[:min(most, len(c.StepCost)-n)] {
		tokens += d.worth
		if r := tokens / c.StepCost[n+i]; r > rate {
			best, rate = i+1, r
		}
	}
	return best
}

// addGuesses adds a request with its guesses to a batch, if it is to get any and
// there are pages for them: nobody is preempted for guesses, nor for want of pages
// that they took.
func (s *Scheduler) addGuesses(b *core.Batch, e *entry) bool {
	end := e.req.DeviceLen + 1 + e.drafts
	if e.drafts == 0 || !s.pages.grow(e.req, end, len(s.running)) {
		return false
	}
	s.add(b, e, end, true, e.drafter.guess[:e.drafts])
	s.verifying = b
	return true
}

// Took tells the cost of a decoding batch of n positions that has run, which
// corrects what StepCost says. A single step that something else has slowed down
// counts little.
func (s *Scheduler) Took(n int, cost float64) {
	if costs := s.cfg.Speculation.StepCost; n <= len(costs) {
		costs[n-1] += (min(cost, 2*costs[n-1]) - costs[n-1]) * costStep
	}
}

// verify takes the tokens of a batch with guesses: the first one, and after each
// guess that was right the next one. What was computed behind them is given up.
func (s *Scheduler) verify(e *entry, seq core.Seq, tokens []int32) {
	right := 0
	for ; !e.done; right++ {
		if e.running {
			e.computed = seq.Start + right + 1
		}
		s.accept(e, tokens[right])
		if right == len(seq.Draft) || seq.Draft[right] != tokens[right] {
			break
		}
	}
	s.drafted += int64(len(seq.Draft))
	s.accepted += int64(right)
	if e.running && !e.done {
		e.req.DeviceLen = e.computed
		s.pages.shrink(e.req)
	}
}

package llm

import (
	"fmt"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/scheduler"
)

// NGram is the value of Config.SpeculativeAlgorithm for guesses from the prompt
// and what was generated: no draft model is needed.
const NGram = "ngram"

const (
	defaultDraftTokens = 8
	maxDraftTokens     = 64
)

// checkSpeculation checks the fields about speculation and fills in what is not
// given.
func (c *Config) checkSpeculation() error {
	c.SpeculativeAlgorithm = strings.ToLower(c.SpeculativeAlgorithm)
	switch {
	case c.SpeculativeAlgorithm == "" && c.SpeculativeDraftTokens != 0:
		return core.Invalid("speculative_num_draft_tokens", "needs speculative_algorithm: ngram")
	case c.SpeculativeAlgorithm == "":
		return nil
	case c.SpeculativeAlgorithm != NGram:
		return core.Invalid("speculative_algorithm", "must be ngram, which needs no draft model, got %q", c.SpeculativeAlgorithm)
	}
	setDefault(&c.SpeculativeDraftTokens, defaultDraftTokens)
	if n := c.SpeculativeDraftTokens; n < 1 || n > maxDraftTokens {
		return core.Invalid("speculative_num_draft_tokens", "must be 1 to %d, got %d", maxDraftTokens, n)
	}
	return nil
}

const (
	costRows   = 16                      // positions of a decoding batch up to which guesses may pay, at least
	costDepth  = 256                     // tokens before them in the KV cache
	costRounds = 8                       // in which each number of positions is measured once; the fastest counts
	costTime   = 1500 * time.Millisecond // after which no further step is measured
)

// measureSteps measures how long decoding steps of 1, 2, … positions take, on
// pages that nobody owns yet. What is out of the time is left out.
func (m *loaded) measureSteps(cfg Config) ([]float64, error) {
	depth := min(costDepth, (m.info.MaxSeqLen-1)/2)
	rows := min(max(costRows, 1+cfg.SpeculativeDraftTokens), cfg.MaxRunningReq+cfg.SpeculativeDraftTokens, m.info.MaxSeqLen-depth)
	req := &core.Req{Params: core.DefaultSampling(), IDs: make([]int32, depth+1), PromptLen: depth}
	for page := range (depth + rows + cfg.PageSize - 1) / cfg.PageSize {
		req.Pages = append(req.Pages, core.Page(page))
	}
	if _, err := m.timeStep(req, 1); err != nil { // the first one is slow: it finds the weights out of every cache
		return nil, err
	}
	var costs []float64
	start := time.Now()
	for range costRounds {
		for n := 1; n <= rows && time.Since(start) < costTime; n++ {
			took, err := m.timeStep(req, n)
			if err != nil {
				return nil, err
			}
			if n > len(costs) {
				costs = append(costs, took)
			}
			costs[n-1] = min(costs[n-1], took)
		}
	}
	for n := len(costs) - 1; n > 0; n-- {
		costs[n-1] = min(costs[n-1], costs[n]) // more positions never take less time
	}
	return costs, nil
}

// timeStep runs a decoding step of n positions and returns its seconds.
func (m *loaded) timeStep(req *core.Req, n int) (float64, error) {
	begin := time.Now()
	err := m.eng.Submit(&core.Batch{Phase: core.Decode, Tokens: n, Seqs: []core.Seq{
		{Req: req, Start: req.PromptLen, End: req.PromptLen + n, Sample: true, Draft: make([]int32, n-1)},
	}})
	if err == nil {
		_, err = m.eng.Wait()
	}
	if err != nil {
		return 0, fmt.Errorf("llm: measuring decoding steps: %w", err)
	}
	return time.Since(begin).Seconds(), nil
}

// speculation tells the scheduler what guesses may cost. It is to be called
// before any request has pages.
func (m *loaded) speculation(cfg Config) (scheduler.Speculation, error) {
	s := scheduler.Speculation{MaxDraft: cfg.SpeculativeDraftTokens, Always: cfg.SpeculateAlways}
	if s.MaxDraft == 0 || s.Always {
		return s, nil
	}
	var err error
	s.StepCost, err = m.measureSteps(cfg)
	cfg.Logger.Debug("decoding steps", "seconds_by_positions", s.StepCost)
	return s, err
}

// AcceptLength is the number of tokens that a decoding step gives a request on
// average, 1 without speculation; 0 if there was no step.
func (s Stats) AcceptLength() float64 {
	if s.RequestSteps == 0 {
		return 0
	}
	return 1 + float64(s.AcceptedTokens)/float64(s.RequestSteps)
}

// AcceptRate is the share of the guessed tokens that were right; 0 if there were
// none.
func (s Stats) AcceptRate() float64 {
	if s.DraftTokens == 0 {
		return 0
	}
	return float64(s.AcceptedTokens) / float64(s.DraftTokens)
}

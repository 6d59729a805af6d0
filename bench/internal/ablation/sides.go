package ablation

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/olekukonko/tablewriter"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/go/llm"
)

// side is an engine with an option off, or with it on.
type side struct {
	eng    *llm.LLM
	speeds map[string][]float64  // of each load's rounds, tokens per second
	tokens map[string][][]int32  // that each load gave
	steps  map[string]*llm.Stats // of each load's rounds: steps, guesses and tokens only
}

func openSide(ctx context.Context, cfg llm.Config) (*side, error) {
	eng, err := engine.Open(ctx, cfg)
	return &side{eng: eng, speeds: map[string][]float64{}, tokens: map[string][][]int32{}, steps: map[string]*llm.Stats{}}, err
}

// runSides answers the loads so often with both engines, and once before that
// doesn't count.
func runSides(ctx context.Context, stderr io.Writer, sides []*side, loads []textLoad, rounds int) error {
	for round := range rounds + 1 {
		fmt.Fprintf(stderr, "round %d of %d (0 fills the prefix caches) ...\n", round, rounds)
		for _, load := range loads {
			for i := range sides { // whoever comes second finds another machine, so they take turns
				if err := sides[(i+round)%2].run(ctx, load, round > 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// run answers a load's prompts, and notes how fast if that counts.
func (s *side) run(ctx context.Context, load textLoad, counts bool) error {
	before, start := s.eng.Stats(), time.Now()
	outs, err := s.eng.Generate(ctx, load.reqs, nil)
	if err != nil {
		return err
	}
	took := time.Since(start)
	n, ids := 0, make([][]int32, len(outs))
	for i, o := range outs {
		n, ids[i] = n+len(o.TokenIDs), o.TokenIDs
	}
	s.tokens[load.name] = ids
	if counts {
		s.speeds[load.name] = append(s.speeds[load.name], float64(n)/took.Seconds())
		s.count(load.name, before, s.eng.Stats())
	}
	return nil
}

// count adds the steps and guesses between two snapshots to a load's.
func (s *side) count(load string, before, after llm.Stats) {
	if s.steps[load] == nil {
		s.steps[load] = &llm.Stats{}
	}
	sum := s.steps[load]
	sum.RequestSteps += after.RequestSteps - before.RequestSteps
	sum.DraftTokens += after.DraftTokens - before.DraftTokens
	sum.JumpedTokens += after.JumpedTokens - before.JumpedTokens
	sum.CompletionTokens += after.CompletionTokens - before.CompletionTokens
	sum.AcceptedTokens += after.AcceptedTokens - before.AcceptedTokens
}

// speedRow is the beginning of a load's row: its name, both speeds and their ratio.
func speedRow(load string, sides []*side) ([]string, error) {
	if !slices.EqualFunc(sides[0].tokens[load], sides[1].tokens[load], slices.Equal) {
		return nil, fmt.Errorf("ablation: %s: the option has changed tokens, which is a bug", load)
	}
	off, on := metrics.Describe(sides[0].speeds[load]).Median, metrics.Describe(sides[1].speeds[load]).Median
	return []string{load, fmt.Sprintf("%.1f", off), fmt.Sprintf("%.1f", on), fmt.Sprintf("%.2f", on/off)}, nil
}

func renderSides(w io.Writer, t *tablewriter.Table, rounds int) error {
	if err := t.Render(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Medians of %d rounds, in turn. The tokens are equal.\n", rounds)
	return err
}

package ablation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/go/llm"
)

// speculation compares an engine that guesses tokens with one that doesn't, on
// texts that repeat and on chats that don't.
type speculation struct {
	model                                string
	atOnce, output, rounds, drafts, most int
}

func speculationCommand() *cobra.Command {
	c := speculation{}
	return program.Spec{
		Name: "speculation", Short: "Texts that repeat, and chats, with n-gram speculation off and on",
		Long: "Each prompt is answered with guesses and without, in turn; every prompt is in the prefix cache, so that what\n" +
			"is measured is decoding. The tokens must be equal. Copying is greedy, chats have a temperature of 0.7.",
		Examples: "  go run ./bench/ablation speculation\n  go run ./bench/ablation speculation --at-once 4 --draft-tokens 4",
		Define:   c.define, Check: c.check, Run: c.compare,
	}.Command()
}

func (c *speculation) define(f *pflag.FlagSet) {
	f.StringVar(&c.model, "model", "smollm2-135m", "the model: a name, a directory or a .gguf file")
	f.IntVar(&c.atOnce, "at-once", 1, "requests that run at once")
	f.IntVar(&c.output, "output", 160, "tokens of an answer at most")
	f.IntVar(&c.rounds, "rounds", 3, "times that everything is measured")
	f.IntVar(&c.drafts, "draft-tokens", 0, "value of --speculative-num-draft-tokens; 0: the engine's default")
	f.IntVar(&c.most, "max-seq-len", 1024, "tokens of prompt and answer together")
}

func (c *speculation) check(*pflag.FlagSet) error {
	if c.atOnce < 1 || c.output < 2 || c.rounds < 1 || c.drafts < 0 || c.most < 2 {
		return errors.New("--at-once and --rounds must be at least 1, --output and --max-seq-len at least 2, --draft-tokens at least 0")
	}
	return nil
}

// side is one of the two engines.
type side struct {
	eng    *llm.LLM
	speeds map[string][]float64  // of each load's rounds, tokens per second
	tokens map[string][][]int32  // that each load gave
	steps  map[string]*llm.Stats // of each load's rounds: steps and guesses only
}

func (c *speculation) open(ctx context.Context, algorithm string) (*side, error) {
	cfg := llm.Config{
		Model: c.model, MaxRunningReq: c.atOnce, MaxSeqLenOverride: c.most, NumPageOverride: 4 * c.most * (c.atOnce + 1), SpeculativeAlgorithm: algorithm,
	}
	if algorithm != "" {
		cfg.SpeculativeDraftTokens = c.drafts
	}
	eng, err := engine.Open(ctx, cfg)
	return &side{eng: eng, speeds: map[string][]float64{}, tokens: map[string][][]int32{}, steps: map[string]*llm.Stats{}}, err
}

func (c *speculation) compare(ctx context.Context, stdout, stderr io.Writer) error {
	var sides []*side
	for _, algorithm := range []string{"", llm.NGram} {
		s, err := c.open(ctx, algorithm)
		if err != nil {
			return err
		}
		defer s.eng.Close()
		sides = append(sides, s)
	}
	loads, err := speculationLoads(sides[0].eng, c.output, c.atOnce)
	if err != nil {
		return err
	}
	for round := range c.rounds + 1 {
		fmt.Fprintf(stderr, "round %d of %d (0 fills the prefix caches) ...\n", round, c.rounds)
		for _, load := range loads {
			for i := range sides { // whoever comes second finds another machine, so they take turns
				if err := sides[(i+round)%2].run(ctx, load, round > 0); err != nil {
					return err
				}
			}
		}
	}
	return writeSpeculation(stdout, loads, sides)
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
	sum.AcceptedTokens += after.AcceptedTokens - before.AcceptedTokens
}

func writeSpeculation(w io.Writer, loads []textLoad, sides []*side) error {
	t := newTable(w)
	t.Header("load", "off (tok/s)", "on (tok/s)", "ratio", "tokens per step", "guesses right")
	for _, load := range loads {
		off, on := metrics.Describe(sides[0].speeds[load.name]).Median, metrics.Describe(sides[1].speeds[load.name]).Median
		if !slices.EqualFunc(sides[0].tokens[load.name], sides[1].tokens[load.name], slices.Equal) {
			return fmt.Errorf("ablation: %s: speculation has changed tokens, which is a bug", load.name)
		}
		steps := sides[1].steps[load.name]
		row := []string{
			load.name, fmt.Sprintf("%.1f", off), fmt.Sprintf("%.1f", on), fmt.Sprintf("%.2f", on/off),
			fmt.Sprintf("%.2f", steps.AcceptLength()), fmt.Sprintf("%.0f %%", 100*steps.AcceptRate()),
		}
		if err := t.Append(row); err != nil {
			return err
		}
	}
	if err := t.Render(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Medians of %d rounds, in turn. The tokens are equal.\n", len(sides[0].speeds[loads[0].name]))
	return err
}

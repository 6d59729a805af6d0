package ablation

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

func (c *speculation) open(ctx context.Context, algorithm string) (*side, error) {
	cfg := llm.Config{
		Model: c.model, MaxRunningReq: c.atOnce, MaxSeqLenOverride: c.most, NumPageOverride: 4 * c.most * (c.atOnce + 1), SpeculativeAlgorithm: algorithm,
	}
	if algorithm != "" {
		cfg.SpeculativeDraftTokens = c.drafts
	}
	return openSide(ctx, cfg)
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
	if err := runSides(ctx, stderr, sides, loads, c.rounds); err != nil {
		return err
	}
	return writeSpeculation(stdout, loads, sides)
}

func writeSpeculation(w io.Writer, loads []textLoad, sides []*side) error {
	t := newTable(w)
	t.Header("load", "off (tok/s)", "on (tok/s)", "ratio", "tokens per step", "guesses right")
	for _, load := range loads {
		row, err := speedRow(load.name, sides)
		if err != nil {
			return err
		}
		steps := sides[1].steps[load.name]
		row = append(row, fmt.Sprintf("%.2f", steps.AcceptLength()), fmt.Sprintf("%.0f %%", 100*steps.AcceptRate()))
		if err := t.Append(row); err != nil {
			return err
		}
	}
	return renderSides(w, t, len(sides[0].speeds[loads[0].name]))
}

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

// jumpForward compares an engine that appends the tokens that grammars force with one
// that samples them.
type jumpForward struct {
	model          string
	atOnce, rounds int
}

func jumpForwardCommand() *cobra.Command {
	c := jumpForward{}
	return program.Spec{
		Name: "jump-forward", Short: "JSON by a schema, with jump-forward of forced tokens off and on",
		Long: "Each prompt is answered in turn by an engine that samples the tokens that a grammar forces and by one that\n" +
			"appends them. Every prompt is in the prefix cache, so that what is measured is decoding. The tokens must be\n" +
			"equal; sampling is greedy.",
		Examples: "  go run ./bench/ablation jump-forward\n  go run ./bench/ablation jump-forward --at-once 16",
		Define:   c.define, Check: c.check, Run: c.compare,
	}.Command()
}

func (c *jumpForward) define(f *pflag.FlagSet) {
	f.StringVar(&c.model, "model", "smollm2-135m", "the model: a name, a directory or a .gguf file")
	f.IntVar(&c.atOnce, "at-once", 1, "requests that run at once")
	f.IntVar(&c.rounds, "rounds", 3, "times that everything is measured")
}

func (c *jumpForward) check(*pflag.FlagSet) error {
	if c.atOnce < 1 || c.rounds < 1 {
		return errors.New("--at-once and --rounds must be at least 1")
	}
	return nil
}

func (c *jumpForward) compare(ctx context.Context, stdout, stderr io.Writer) error {
	const most = 1024 // tokens of prompt and answer
	var sides []*side
	for _, disabled := range []bool{true, false} {
		s, err := openSide(ctx, llm.Config{
			Model: c.model, MaxRunningReq: c.atOnce, MaxSeqLenOverride: most, NumPageOverride: most * (c.atOnce + 2), DisableJumpForward: disabled,
		})
		if err != nil {
			return err
		}
		defer s.eng.Close()
		sides = append(sides, s)
	}
	loads := schemaLoads(c.atOnce)
	if err := runSides(ctx, stderr, sides, loads, c.rounds); err != nil {
		return err
	}
	t := newTable(stdout)
	t.Header("load", "off (tok/s)", "on (tok/s)", "ratio", "tokens forced")
	for _, load := range loads {
		row, err := speedRow(load.name, sides)
		if err != nil {
			return err
		}
		s := sides[1].steps[load.name]
		row = append(row, fmt.Sprintf("%.0f %%", 100*float64(s.JumpedTokens)/float64(s.CompletionTokens)))
		if err := t.Append(row); err != nil {
			return err
		}
	}
	return renderSides(stdout, t, c.rounds)
}

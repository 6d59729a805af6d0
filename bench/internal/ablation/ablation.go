// Package ablation measures what the engine's options are worth: it runs the same
// load with one of them changed, in this process.
package ablation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/go/llm"
)

const examples = `  # the whole list, about a minute on two cores
  go run ./bench/ablation

  # two options, five rounds
  go run ./bench/ablation --what overlap,page-size --page-sizes 16,32,64 --rounds 5

  # a longer load, from another baseline
  go run ./bench/ablation --what cache-type --input 512 --shared 448 --page-size 16 --max-running-requests 8`

const description = `Changes one option of the engine at a time, from a baseline, and measures each
configuration with the same load: --requests prompts at once, of random tokens, of
which the first --shared are the same in all and known to the engine, as a system
prompt is. The engine is started anew for each measurement, in this process, and
the configurations take turns: A B C, A B C, A B C.

The table has medians over the rounds, and each one's change against the baseline.
Its second row is how far the baseline's own rounds lie apart: a smaller change
says nothing. The P99 of few requests is nearly the slowest one. The tokens must be
equal in all configurations; if they are not, the program ends with an error.

  overlap            planning the next batch while one runs, or after it
  cuda-graph         decoding batches as CUDA graphs, with --device cuda
  cache-type         prefix cache: radix or naive
  attention-backend  not measured here: fi has tokens of its own (--attention-backend)
  chunk-size         prompt tokens that a batch computes at most (--max-prefill-length)
  page-size          tokens of a page of the KV cache
  max-running        requests that run at once (--max-running-requests)

The baseline is what the engine's flags say, below. The commands turns, mixed,
speculation and jump-forward compare one option each, with a load made for it.`

// Program is the measurement as a program.
var Program = program.Program{Name: "ablation", Command: newCommand}

// config is the whole list's.
type config struct {
	what                              []string
	requests, input, shared, output   int
	rounds                            int
	seed                              uint64
	chunkSizes, pageSizes, maxRunning []int
	file                              string
	base                              llm.Config

	list    []*configuration
	missing []string
	measure runner
}

func newCommand() *cobra.Command {
	c := &config{}
	c.measure = c.runEngine
	root := c.command()
	root.AddCommand(turnsCommand(), mixedCommand(), speculationCommand(), jumpForwardCommand())
	return root
}

func (c *config) command() *cobra.Command {
	return program.Spec{
		Name: "ablation", Short: "What the engine's options are worth, on this machine", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.StringSliceVar(&c.what, "what", nil, "options to compare, of those above (default: all)")
	f.IntVar(&c.requests, "requests", 24, "requests, all at once")
	f.IntVar(&c.input, "input", 128, "tokens of each prompt")
	f.IntVar(&c.shared, "shared", 64, "of them, those at its start that all prompts share")
	f.IntVar(&c.output, "output", 32, "tokens of each answer")
	f.IntVar(&c.rounds, "rounds", 3, "times that each configuration is measured")
	f.Uint64Var(&c.seed, "seed", 42, "of the random tokens")
	f.IntSliceVar(&c.chunkSizes, "chunk-sizes", []int{512, 128}, "values of chunk-size beside the baseline's")
	f.IntSliceVar(&c.pageSizes, "page-sizes", []int{16, 64}, "values of page-size beside the baseline's")
	f.IntSliceVar(&c.maxRunning, "max-running", []int{8, 2}, "values of max-running beside the baseline's")
	f.StringVar(&c.file, "output-file", "", "append each measurement to this file, as a line of JSON")
	engine.Define(f, &c.base)
	for _, own := range []struct{ flag, value, usage string }{ // a baseline has values, not zeros that stand for the engine's
		{"max-prefill-length", "8192", "the baseline's chunk-size"},
		{"page-size", "1", "the baseline's page-size"},
		{"max-running-requests", "256", "the baseline's max-running"},
	} {
		flag := f.Lookup(own.flag)
		flag.DefValue, flag.Usage = own.value, own.usage
		if err := flag.Value.Set(own.value); err != nil {
			panic(err)
		}
	}
}

const maxValues = 16 // of an option

func (c *config) check(*pflag.FlagSet) error {
	bounds := []program.Bound{
		{Flag: "requests", Value: c.requests, Low: 1, Top: program.MaxRequests},
		{Flag: "input", Value: c.input, Low: 1, Top: program.MaxTokens},
		{Flag: "shared", Value: c.shared, Low: 0, Top: c.input - 1},
		{Flag: "output", Value: c.output, Low: 2, Top: program.MaxTokens},
		{Flag: "rounds", Value: c.rounds, Low: 1, Top: 1000},
		{Flag: "max-prefill-length", Value: c.base.MaxExtendTokens, Low: 1, Top: program.MaxTokens},
		{Flag: "page-size", Value: c.base.PageSize, Low: 1, Top: llm.MaxPageSize},
		{Flag: "max-running-requests", Value: c.base.MaxRunningReq, Low: 1, Top: llm.MaxRunningRequests},
	}
	for _, list := range []struct {
		flag   string
		values []int
		top    int
	}{{"chunk-sizes", c.chunkSizes, program.MaxTokens}, {"page-sizes", c.pageSizes, llm.MaxPageSize}, {"max-running", c.maxRunning, llm.MaxRunningRequests}} {
		if n := len(list.values); n == 0 || n > maxValues {
			return fmt.Errorf("--%s has %d values: want 1 to %d", list.flag, n, maxValues)
		}
		for _, v := range list.values {
			bounds = append(bounds, program.Bound{Flag: list.flag, Value: v, Low: 1, Top: list.top})
		}
	}
	if err := program.CheckBounds(bounds); err != nil {
		return err
	}
	if os.Getenv(noOverlap) != "" {
		return fmt.Errorf("%s is set, which turns overlap off in every configuration: unset it, and give --disable-overlap-schedule if the baseline shall be without", noOverlap)
	}
	if !slices.Contains([]string{"radix", "naive"}, c.base.CacheType) {
		return fmt.Errorf("--cache-type %q: want radix or naive", c.base.CacheType)
	}
	var err error
	c.list, c.missing, err = c.configurations()
	return err
}

// noOverlap is a variable that the engine reads.
const noOverlap = "MINISGL_DISABLE_OVERLAP_SCHEDULING"

func (c *config) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	out, err := program.OpenOutput("output-file", c.file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	stopped := c.rotate(ctx, out, stderr)
	if stopped != nil && (!errors.Is(stopped, program.ErrInterrupted) || len(c.list[0].runs) == 0) {
		return stopped
	}
	if err := c.write(stdout); err != nil {
		return err
	}
	return stopped
}

// newTable returns a table that prints its header as it is.
func newTable(w io.Writer) *tablewriter.Table {
	return tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
}

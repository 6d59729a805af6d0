// Package scaling measures how the engine's speed grows with threads and with the
// batch, and how it falls with the depth of a context.
package scaling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/curve"
	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/stats"
	"github.com/minisgl/minisgl/go/llm"
)

const description = `Measures the engine in this process with each number of threads: prompts of
--prefill-len tokens; decoding of each batch size, behind prompts of 32 tokens; and
decoding of one request at each depth. Prints a table of tokens per second, all
requests together, from the median of the forward passes; --plot draws it.`

const examples = `  go run ./bench/scaling --model smollm2-135m --threads-list 1 2 --plot scaling.svg`

const (
	shortPrompt = 32 // tokens before the decoding of batches
	prefills    = 3  // prompts whose median counts
)

// Program is the benchmark as a program.
var Program = program.Program{Name: "scaling", Command: newCommand, Lists: []string{"threads-list", "batch-size", "depth"}}

type config struct {
	engine                   llm.Config
	threads, batches, depths []int
	prefill, steps           int
	plot                     string
}

func newCommand() *cobra.Command {
	c := &config{}
	return program.Spec{
		Name: "scaling", Short: "Speed over threads, batch and depth, as a table and a plot", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.IntSliceVar(&c.threads, "threads-list", []int{1, 2}, "numbers of threads; several may follow")
	f.IntSliceVar(&c.batches, "batch-size", []int{1, 2, 4, 8, 16, 32}, "requests that decode at once; several may follow")
	f.IntSliceVar(&c.depths, "depth", []int{32, 512, 1024, 2048, 4096}, "tokens before those that one request decodes; several may follow")
	f.IntVar(&c.prefill, "prefill-len", 512, "tokens of a prompt whose speed is measured")
	f.IntVar(&c.steps, "steps", 16, "tokens that each request decodes")
	f.StringVar(&c.plot, "plot", "", "draw the table into this file (.svg or .png)")
	engine.Define(f, &c.engine)
}

func (c *config) check(*pflag.FlagSet) error {
	for flag, list := range map[string][]int{"threads-list": c.threads, "batch-size": c.batches, "depth": c.depths, "prefill-len": {c.prefill}, "steps": {c.steps}} {
		if len(list) == 0 || slices.Min(list) < 1 || slices.Max(list) > program.MaxTokens {
			return fmt.Errorf("--%s: want numbers from 1 to %d, got %v", flag, program.MaxTokens, list)
		}
	}
	if c.plot == "" {
		return nil
	}
	return curve.CheckPlotName(c.plot)
}

// cell is one speed, in tokens per second.
type cell struct {
	threads, batch, depth int // batch 0: a prompt of depth tokens
	speed                 float64
}

func (c *config) run(ctx context.Context, stdout, _ io.Writer) error {
	var cells []cell
	for _, threads := range c.threads {
		more, err := c.measureThreads(ctx, threads)
		if err != nil {
			return err
		}
		cells = append(cells, more...)
	}
	if err := writeTable(stdout, cells); err != nil || c.plot == "" {
		return err
	}
	return draw(c.plot, c.engine.Model, cells)
}

// measureThreads measures one engine.
func (c *config) measureThreads(ctx context.Context, threads int) (cells []cell, err error) {
	cfg := c.engine
	cfg.Threads, cfg.CacheType = threads, "naive"
	cfg.MaxRunningReq = max(cfg.MaxRunningReq, slices.Max(c.batches))
	eng, err := engine.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	info := eng.Info()
	if tokens := max(c.prefill, slices.Max(c.depths)) + c.steps + 1; tokens > info.MaxSeqLen {
		return nil, program.Usage(fmt.Errorf("%d tokens of one request do not fit: the model takes %d", tokens, info.MaxSeqLen))
	}
	measure := func(batch, depth, steps int) error {
		if steps > 0 && slices.ContainsFunc(cells, func(c cell) bool { return c.batch == batch && c.depth == depth }) {
			return nil // both lists have it
		}
		speed, err := measure(ctx, eng, max(1, batch), depth, steps)
		cells = append(cells, cell{threads, batch, depth, speed})
		return err
	}
	for range prefills {
		err = errors.Join(err, measure(0, c.prefill, 0))
	}
	slices.SortFunc(cells, func(a, b cell) int { return int(a.speed - b.speed) })
	cells = cells[prefills/2 : prefills/2+1]
	for _, batch := range c.batches {
		err = errors.Join(err, measure(batch, shortPrompt, c.steps))
	}
	for _, depth := range c.depths {
		err = errors.Join(err, measure(1, depth, c.steps))
	}
	return cells, err
}

// measure runs a batch and returns the speed of its prompts (steps 0) or of its
// decoding: the median step's.
func measure(ctx context.Context, eng *llm.LLM, batch, prompt, steps int) (float64, error) {
	rng := rand.New(rand.NewPCG(1, uint64(batch)))
	requests := make([]llm.Request, batch)
	for i := range requests {
		requests[i] = llm.Request{TokenIDs: engine.RandomIDs(rng, eng, prompt), Params: engine.Greedy(steps + 1)}
	}
	var prefill float64
	var decode []float64
	// The hook runs in the engine's goroutine; Generate returns after it.
	err := eng.SetForwardHook(func(b llm.BatchInfo, forward func() error) error {
		begin := time.Now()
		err := forward()
		if seconds := time.Since(begin).Seconds(); b.Prefill {
			prefill += seconds
		} else {
			decode = append(decode, seconds)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	_, err = eng.Generate(ctx, requests, nil)
	if err = program.Interrupted(ctx, errors.Join(err, eng.SetForwardHook(nil))); err != nil {
		return 0, err
	}
	if steps == 0 {
		return float64(batch*prompt) / prefill, nil
	}
	return float64(batch) / stats.Median(decode), nil
}

// writeTable prints a row for each thing measured, a column for each number of
// threads, and how the last compares with the first.
func writeTable(w io.Writer, cells []cell) error {
	var threads []int
	for _, c := range cells {
		if !slices.Contains(threads, c.threads) {
			threads = append(threads, c.threads)
		}
	}
	table := tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
	header := []string{"tokens/s"}
	for _, n := range threads {
		header = append(header, fmt.Sprintf("%d threads", n))
	}
	table.Header(append(header, "last / first"))
	n := len(cells) / len(threads)
	for i := range n {
		row := []string{cells[i].name()}
		for t := range threads {
			row = append(row, fmt.Sprintf("%.1f", cells[t*n+i].speed))
		}
		last := cells[(len(threads)-1)*n+i].speed
		if err := table.Append(append(row, fmt.Sprintf("%.2f", last/cells[i].speed))); err != nil {
			return fmt.Errorf("scaling: %w", err)
		}
	}
	if err := table.Render(); err != nil {
		return fmt.Errorf("scaling: %w", err)
	}
	return nil
}

func (c cell) name() string {
	if c.batch == 0 {
		return fmt.Sprintf("prefill of %d", c.depth)
	}
	return fmt.Sprintf("decode %d at %d", c.batch, c.depth)
}

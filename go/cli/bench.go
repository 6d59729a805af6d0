package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/go/llm"
)

// maxBenchTokens bounds a case's tokens.
const maxBenchTokens = 1 << 20

// benchCase is one thing to measure: batch requests of prompt tokens each, and
// then output tokens of each. Without output it is the prompt's speed that counts.
type benchCase struct {
	Batch  int `json:"batch"`
	Prompt int `json:"prompt"`
	Output int `json:"output"`
}

func (c benchCase) String() string {
	if c.Output == 0 {
		return fmt.Sprintf("prefill %d", c.Prompt)
	}
	return fmt.Sprintf("decode %d at %d", c.Batch, c.Prompt)
}

// parseBenchCase reads "512" (a prompt's speed) or "16x32+64" (decoding).
func parseBenchCase(text string) (c benchCase, err error) {
	batch, rest, decode := strings.Cut(text, "x")
	if !decode {
		batch, rest = "1", text
	}
	prompt, output, hasOutput := strings.Cut(rest, "+")
	if decode != hasOutput {
		return c, fmt.Errorf("case %q is neither PROMPT nor BATCHxPROMPT+OUTPUT, as in 512 and 16x32+64", text)
	}
	for _, part := range []struct {
		to   *int
		from string
	}{{&c.Batch, batch}, {&c.Prompt, prompt}, {&c.Output, output}} {
		if part.to == &c.Output && !decode {
			continue
		}
		if *part.to, err = strconv.Atoi(part.from); err != nil || *part.to < 1 || *part.to > maxBenchTokens {
			return c, fmt.Errorf("case %q: %q is not a number from 1 to %d", text, part.from, maxBenchTokens)
		}
	}
	return c, nil
}

// benchResult is a case's speed in tokens per second, all requests together: of
// each run, and their median.
type benchResult struct {
	benchCase
	Runs   []float64    `json:"runs"`
	Median float64      `json:"tokens_per_second"`
	Ops    []llm.OpTime `json:"ops,omitempty"` // of all runs together
}

// benchReport is what --json prints.
type benchReport struct {
	Model         string        `json:"model"`
	DType         string        `json:"dtype"`
	Device        string        `json:"device"`
	Threads       int           `json:"threads"`
	WeightBytes   int64         `json:"weight_bytes"`
	BytesPerS     float64       `json:"read_bytes_per_second"`
	FlopsPerS     float64       `json:"flops_per_second"`
	FlopsPerToken float64       `json:"flops_per_token"` // of the projections, without the head
	Results       []benchResult `json:"results"`
}

func benchCommand(p *program) *cobra.Command {
	var engine engineFlags
	var asJSON, timeOps bool
	var names []string
	repeat := 3
	engine.logLevel.quiet()
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure the speed of prompts and of decoding, beside the machine's limits",
		Long: `Measure the speed of prompts and of decoding on this machine.

A case is PROMPT, the speed of one prompt of that many tokens; or
BATCHxPROMPT+OUTPUT, the speed of decoding OUTPUT tokens of each of BATCH requests
at once, after prompts of PROMPT tokens: 1x2048+32 decodes at depth 2048. Speeds
are tokens per second, all requests together, and the median of --repeat runs.

Beside them stand the machine's limits, measured first: how much of its memory
bandwidth reading the weights once a step takes, and how much of its float32
arithmetic the projections take.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cases := make([]benchCase, len(names))
			for i, name := range names {
				var err error
				if cases[i], err = parseBenchCase(name); err != nil {
					return usageErrorf("--cases: %v", err)
				}
			}
			if repeat < 1 {
				return usageErrorf("--repeat must be at least 1, got %d", repeat)
			}
			if err := engine.check(); err != nil {
				return err
			}
			return p.bench(cmd.Context(), &engine, cases, repeat, timeOps, asJSON)
		},
	}
	cmd.Flags().StringSliceVar(&names, "cases", []string{"512", "1x32+64", "4x32+64", "8x32+64", "16x32+64", "1x2048+32"}, "what to measure")
	cmd.Flags().IntVar(&repeat, "repeat", repeat, "runs of each case")
	cmd.Flags().BoolVar(&timeOps, "ops", false, "also say where the time of the forward passes goes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	engine.register(cmd.Flags())
	acceptSettings(cmd)
	acceptNames(cmd, engineAliases)
	return cmd
}

func (p *program) bench(ctx context.Context, flags *engineFlags, cases []benchCase, repeat int, timeOps, asJSON bool) (err error) {
	limits, err := llm.MeasureLimits(int(flags.threads))
	if err != nil {
		return err
	}
	cfg := flags.config(flags.logger(p.stderr))
	cfg.MixedTokens, cfg.CacheType = new(0), "naive" // prompts run alone, and each is computed
	for _, c := range cases {
		cfg.MaxRunningReq = max(cfg.MaxRunningReq, c.Batch)
	}
	e, err := p.engines.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	info := e.Info()
	report := benchReport{
		Model: info.Model, DType: info.DType, Device: info.Device, Threads: info.Threads, WeightBytes: info.WeightBytes,
		FlopsPerToken: info.FlopsPerToken, BytesPerS: limits.BytesPerSecond, FlopsPerS: limits.FlopsPerSecond,
	}
	b := bencher{e: e, rng: rand.New(rand.NewPCG(1, 2)), vocab: info.VocabSize}
	if _, err := b.run(ctx, benchCase{Batch: 1, Prompt: 16, Output: 4}); err != nil { // warms up
		return err
	}
	var timer llm.OpTimer
	if timed, ok := e.(interface{ TimeOps(t *llm.OpTimer) error }); ok && timeOps {
		if err := timed.TimeOps(&timer); err != nil {
			return err
		}
	}
	for _, c := range cases {
		r := benchResult{benchCase: c}
		for range repeat {
			speed, err := b.run(ctx, c)
			if err != nil {
				return fmt.Errorf("%v: %w", c, err)
			}
			r.Runs = append(r.Runs, speed)
		}
		r.Median, r.Ops = median(r.Runs), timer.Take()
		report.Results = append(report.Results, r)
	}
	if asJSON {
		return json.NewEncoder(p.stdout).Encode(report)
	}
	return report.print(p.stdout)
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// bencher runs cases on an engine.
type bencher struct {
	e     engine
	rng   *rand.Rand
	vocab int
}

// run returns the speed of one run of a case.
func (b *bencher) run(ctx context.Context, c benchCase) (float64, error) {
	params := llm.DefaultSampling()
	params.MaxTokens, params.IgnoreEOS = c.Output+1, true
	times := make([]chan time.Time, c.Batch)
	failed := make(chan error, c.Batch)
	start := time.Now()
	for i := range times {
		times[i] = make(chan time.Time, c.Output+1)
		ids := make([]int32, c.Prompt)
		for j := range ids {
			ids[j] = int32(b.rng.IntN(b.vocab))
		}
		s, err := b.e.Stream(ctx, llm.Request{TokenIDs: ids, Params: params})
		if err != nil {
			return 0, err
		}
		go func() { failed <- stamp(ctx, s, times[i]) }()
	}
	for range times {
		if err := <-failed; err != nil {
			return 0, err
		}
	}
	return c.speed(start, times), nil
}

// stamp sends the time of each token.
func stamp(ctx context.Context, s interface {
	Next(ctx context.Context) (llm.Event, error)
	Close()
}, to chan<- time.Time) error {
	defer s.Close()
	defer close(to)
	for {
		ev, err := s.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ev.Err != nil:
			return ev.Err
		}
		if ev.HasToken {
			to <- time.Now()
		}
		if ev.Finish != "" {
			return nil
		}
	}
}

// speed is that of the prompt, up to its first token; or that of the tokens after
// all requests have had their first one.
func (c benchCase) speed(start time.Time, times []chan time.Time) float64 {
	var all []time.Time
	var began time.Time
	for _, ch := range times {
		first := <-ch
		if first.After(began) {
			began = first
		}
		for t := range ch {
			all = append(all, t)
		}
	}
	if c.Output == 0 {
		return float64(c.Prompt) / began.Sub(start).Seconds()
	}
	last, tokens := began, 0
	for _, t := range all {
		if t.After(began) {
			tokens++
		}
		if t.After(last) {
			last = t
		}
	}
	return float64(tokens) / last.Sub(began).Seconds()
}

func (r benchReport) print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s, %.0f MB of weights, %s, %d threads\n", r.Model, r.DType, float64(r.WeightBytes)/1e6, r.Device, r.Threads)
	fmt.Fprintf(w, "the machine: reads %.1f GB/s from memory, computes %.0f GFLOP/s in float32\n\n", r.BytesPerS/1e9, r.FlopsPerS/1e9)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "case\ttokens/s\tof the bandwidth\tof the arithmetic\t")
	for _, c := range r.Results {
		bandwidth := "-"
		if c.Output > 0 {
			bandwidth = share(c.Median / float64(c.Batch) * float64(r.WeightBytes) / r.BytesPerS)
		}
		fmt.Fprintf(tw, "%v\t%.1f\t%s\t%s\t\n", c.benchCase, c.Median, bandwidth, share(c.Median*r.FlopsPerToken/r.FlopsPerS))
	}
	for _, c := range r.Results {
		c.printOps(tw)
	}
	return tw.Flush()
}

// printOps prints where the time went, prompts included.
func (r benchResult) printOps(tw *tabwriter.Writer) {
	var total time.Duration
	for _, op := range r.Ops {
		total += op.Time
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(tw, "\n%v\tcalls\ttime\tmean\tshare\t\n", r.benchCase)
	for _, op := range r.Ops {
		fmt.Fprintf(tw, "%s, %s\t%d\t%.1f ms\t%.1f µs\t%s\t\n", op.Part, op.Kind, op.Count, 1e3*op.Time.Seconds(),
			1e6*op.Time.Seconds()/float64(op.Count), share(op.Time.Seconds()/total.Seconds()))
	}
}

func share(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }

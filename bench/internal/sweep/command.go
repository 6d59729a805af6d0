package sweep

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/curve"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/serving"
)

const examples = `  # latency over the request rate, three runs each, report in sweep-results/
  go run ./bench/sweep --backend minisgl --dataset-name random-ids --random-input 128 --random-output 64 --rates 1,2,4,8,16 --seconds 30 --repeats 3

  # over the number of requests in flight
  go run ./bench/sweep --backend vllm --dataset-name random-ids --concurrencies 1,4,16,64 --num-prompts 200

  # the highest rate at which 95% of the requests meet two limits
  go run ./bench/sweep --backend minisgl --dataset-name random-ids --slo ttft:500 tpot:50 --rates 1 --num-prompts 200

  # go on after an interrupt
  go run ./bench/sweep ... --resume`

const description = `Runs the serving benchmark at rising loads and reports where the server
saturates: the knee, the capacity of one replica, and that with headroom. Takes
the flags of serving; --request-rate and --max-concurrency have no use.

Prompts differ between steps, so that no step finds those of an earlier one in
the server's cache; --same-prompts asks for a warm cache instead, --flush-cache
empties it before each step.

With --slo it searches the highest rate that meets latency limits instead: a rate
counts as met or missed when the 95% interval of the share of good requests lies
on one side of --attainment, and the search says so when it cannot decide.

Writes runs.jsonl (one line per run), sweep.csv, sweep.md, sweep.svg and
sweep.html, which holds all of it, into --output-dir.`

// Program is the sweep as a program.
var Program = program.Program{Name: "sweep", Command: newCommand, Lists: append([]string{"slo"}, serving.Lists...)}

type config struct {
	o             *serving.Options
	rates         program.Rates
	concurrencies []int
	seconds       float64
	repeats       int
	samePrompts   bool
	dir           string
	resume        bool
	dryRun        bool
	fingerprint   string

	slo        []string
	slos       []metrics.SLO
	attainment float64
	probes     int
}

func newCommand() *cobra.Command { return (&config{o: &serving.Options{}}).command() }

func (c *config) command() *cobra.Command {
	return program.Spec{
		Name: "sweep", Short: "Latency and throughput over rising loads, the knee, and a report", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.Var(&c.rates, "rates", "request rates to measure, such as 1,2,4,8")
	f.IntSliceVar(&c.concurrencies, "concurrencies", nil, "or numbers of requests in flight, such as 1,4,16")
	f.Float64Var(&c.seconds, "seconds", 0, "with --rates: send for so long instead of --num-prompts requests")
	f.IntVar(&c.repeats, "repeats", 1, "runs of each load; the report has their median")
	f.BoolVar(&c.samePrompts, "same-prompts", false, "send the same prompts in each run: measures a warm cache")
	f.StringArrayVar(&c.slo, "slo", nil, "instead of a sweep: search the highest rate that meets these limits in ms: ttft:MS tpot:MS e2el:MS. --rates gives the first rate and, if there are more, the highest")
	f.Float64Var(&c.attainment, "attainment", 0.95, "with --slo: share of the requests that must meet all limits")
	f.IntVar(&c.probes, "probes", 12, "with --slo: most rates to try")
	f.StringVar(&c.dir, "output-dir", "sweep-results", "directory for results")
	f.BoolVar(&c.resume, "resume", false, "skip runs that the directory already has")
	f.BoolVar(&c.dryRun, "dry-run", false, "only print the runs")
	c.o.Define(f)
}

func (c *config) check(f *pflag.FlagSet) error {
	if err := c.o.Check(f); err != nil {
		return err
	}
	switch {
	case (len(c.rates) > 0) == (len(c.concurrencies) > 0):
		return errors.New("give either --rates or --concurrencies")
	case slices.ContainsFunc(c.concurrencies, func(n int) bool { return n < 1 || n > program.MaxRequests }):
		return fmt.Errorf("--concurrencies: want numbers from 1 to %d", program.MaxRequests)
	case c.seconds < 0 || c.seconds > 86400*30:
		return fmt.Errorf("--seconds is %v: want 0 or more", c.seconds)
	case c.repeats < 1 || c.repeats > 1000:
		return fmt.Errorf("--repeats is %d: want 1 to 1000", c.repeats)
	}
	var err error
	if c.slos, err = metrics.ParseSLOs(c.slo); err != nil {
		return fmt.Errorf("--slo: %w", err)
	}
	switch {
	case len(c.slos) > 0 && len(c.rates) == 0:
		return errors.New("--slo searches a rate: give the first one with --rates")
	case !(c.attainment > 0 && c.attainment < 1):
		return fmt.Errorf("--attainment is %v: want more than 0 and less than 1", c.attainment)
	case c.probes < 1 || c.probes > 100:
		return fmt.Errorf("--probes is %d: want 1 to 100", c.probes)
	}
	for _, r := range c.rates {
		if c.seconds > 0 && float64(r)*c.seconds > program.MaxRequests {
			return fmt.Errorf("--rates %v for %v seconds is more than %d requests", float64(r), c.seconds, program.MaxRequests)
		}
	}
	c.fingerprint = fingerprint(f)
	return nil
}

// fingerprint names the settings that make runs comparable.
func fingerprint(f *pflag.FlagSet) string {
	free := []string{"rates", "concurrencies", "repeats", "output-dir", "resume", "dry-run", "quiet", "disable-tqdm", "tag"}
	hash := sha256.New()
	f.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(free, flag.Name) {
			fmt.Fprintf(hash, "%s=%s\n", flag.Name, flag.Value)
		}
	})
	return hex.EncodeToString(hash.Sum(nil)[:6])
}

func (c *config) run(ctx context.Context, stdout, stderr io.Writer) error {
	if len(c.slos) > 0 {
		b, err := serving.Open(ctx, c.o, stderr)
		if err != nil {
			return err
		}
		defer b.Close()
		return c.findRate(ctx, b, stdout, stderr)
	}
	steps := c.plan()
	if c.dryRun {
		return list(stdout, c.axis(), steps)
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return program.Usage(fmt.Errorf("--output-dir: %w", err))
	}
	done, err := c.finished()
	if err != nil {
		return err
	}
	if len(done) > 0 && !c.resume {
		return program.Usage(fmt.Errorf("%s has runs already: go on with --resume, or name another --output-dir", c.dir))
	}
	b, err := serving.Open(ctx, c.o, stderr)
	if err != nil {
		return err
	}
	defer b.Close()
	outcomes, failure := c.measure(ctx, b, steps, done, stderr)
	if len(outcomes) == 0 {
		return failure
	}
	return errors.Join(failure, c.report(stdout, outcomes))
}

// measure runs the steps that are not done. An error ends the sweep; what was
// measured before stays.
func (c *config) measure(ctx context.Context, b *serving.Bench, steps []step, done []outcome, stderr io.Writer) ([]outcome, error) {
	outcomes := make([]outcome, 0, len(steps))
	for i, s := range steps {
		if at := slices.IndexFunc(done, func(o outcome) bool { return o.Load == s.Load && o.Repeat == s.Repeat }); at >= 0 {
			outcomes = append(outcomes, done[at])
			continue
		}
		if !c.o.Quiet {
			fmt.Fprintf(stderr, "Run %d of %d: %s %g\n", i+1, len(steps), c.axis(), s.Load)
		}
		stop := b.Watch(ctx, time.Second/2)
		run, err := b.Measure(ctx, s.offer)
		server := stop()
		switch {
		case err != nil:
			return outcomes, err
		case run.Result.Interrupted:
			return outcomes, program.ErrInterrupted
		}
		o := outcome{step: s, Config: c.fingerprint, Seed: s.offer.Seed, Server: server, Summary: run.Result.Summary}
		if err := c.save(&o); err != nil {
			return outcomes, err
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

func list(w io.Writer, axis curve.Axis, steps []step) error {
	var text strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&text, "Run %d: %s %g, repeat %d, %d requests\n", i+1, axis, s.Load, s.Repeat+1, s.offer.NumPrompts)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

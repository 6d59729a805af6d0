// Package selftest tells how exact this load generator is on this machine, by
// measuring a server whose delays are known.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/arrival"
	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/stats"
)

const description = `Measures a server with known delays, in this process, and prints how far the
figures are from the truth, which request rate this machine can hold, and how
many chunks per second it can read. Server and client share the CPU, so the
client alone does at least as well. The aims are what it reaches on an idle
machine.`

const examples = `  go run ./bench/selftest

  # only the burst of 64 requests and the rate of 500 a second, five times each
  go run ./bench/selftest --parts burst,rate --repeats 5`

// Program is the test as a program.
var Program = program.Program{Name: "selftest", Command: newCommand}

func newCommand() *cobra.Command {
	t := &tester{}
	return program.Spec{
		Name: "selftest", Short: "How exact this load generator is on this machine", Long: description, Examples: examples,
		Define: t.define, Check: t.check, Run: t.run,
	}.Command()
}

func (t *tester) define(f *pflag.FlagSet) {
	f.Float64Var(&t.seconds, "seconds", 2, "length of each part")
	f.IntVar(&t.repeats, "repeats", 1, "runs of each part; the table has their medians")
	f.StringSliceVar(&t.names, "parts", partNames(), "what to measure")
}

func (t *tester) check(*pflag.FlagSet) error {
	switch {
	case !(t.seconds > 0 && t.seconds <= 3600):
		return fmt.Errorf("--seconds is %v: want more than 0 and at most 3600", t.seconds)
	case t.repeats < 1 || t.repeats > 1000:
		return fmt.Errorf("--repeats is %d: want 1 to 1000", t.repeats)
	case len(t.names) == 0:
		return errors.New("--parts: name a part")
	}
	for _, name := range t.names {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("--parts: %q: want some of %s", name, strings.Join(partNames(), ", "))
		}
	}
	return nil
}

type tester struct {
	seconds float64
	repeats int
	names   []string
}

// figure is one row of the table.
type figure struct {
	what, unit string
	truth, got float64 // truth is NaN if there is none
	aim        string  // what a good client on an idle machine reaches
	reaches    func(got float64) bool
}

// part is something to measure.
type part struct {
	name    string
	measure func(t *tester, ctx context.Context) ([]figure, error)
}

var parts = []part{
	{"exactness", (*tester).exactness}, {"burst", (*tester).burst}, {"rate", (*tester).rate}, {"highest-rate", (*tester).highestRate}, {"chunks", (*tester).chunks},
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func (t *tester) run(ctx context.Context, stdout, _ io.Writer) error {
	table := tablewriter.NewTable(stdout, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignLeft))
	table.Header("measured", "truth", "this client", "difference", "aim")
	for _, p := range parts {
		if !slices.Contains(t.names, p.name) {
			continue
		}
		figures, err := t.repeat(ctx, p)
		if err != nil {
			return err
		}
		for _, f := range figures {
			if err := table.Append(f.cells()); err != nil {
				return fmt.Errorf("selftest: %w", err)
			}
		}
	}
	return table.Render()
}

// repeat measures a part several times and takes the median of each figure.
func (t *tester) repeat(ctx context.Context, p part) ([]figure, error) {
	var figures []figure
	var got [][]float64
	for i := range t.repeats {
		run, err := p.measure(t, ctx)
		if ctx.Err() != nil {
			return nil, program.ErrInterrupted
		}
		if err != nil {
			return nil, err
		}
		if i == 0 {
			figures, got = run, make([][]float64, len(run))
		}
		for j := range run {
			got[j] = append(got[j], run[j].got)
		}
	}
	for j := range figures {
		figures[j].got = stats.Median(got[j])
	}
	return figures, nil
}

func (f *figure) cells() []string {
	number := func(v float64) string {
		if f.unit == "ms" {
			return fmt.Sprintf("%.2f ms", v)
		}
		return fmt.Sprintf("%.6g %s", v, f.unit)
	}
	truth, difference, aim := "", "", ""
	if !math.IsNaN(f.truth) {
		truth, difference = number(f.truth), fmt.Sprintf("%+.2f ms", f.got-f.truth)
		if f.unit != "ms" {
			difference = fmt.Sprintf("%+.2f%%", 100*(f.got/f.truth-1))
		}
	}
	if f.aim != "" {
		aim = f.aim + ": missed"
		if f.reaches(f.got) {
			aim = f.aim + ": reached"
		}
	}
	return []string{f.what, truth, number(f.got), difference, aim}
}

// load is what one part sends.
type load struct {
	n, tokens, limit int
	rate             float64
}

// measure runs a load against a server on the loopback interface.
func measure(ctx context.Context, handler http.Handler, l load) (metrics.Summary, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return metrics.Summary{}, fmt.Errorf("selftest: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends when the server is closed
	}()
	defer func() { _ = server.Close(); <-done }()
	client := loadgen.NewHTTP(loadgen.HTTPOptions{Connections: l.n, Timeout: time.Minute})
	defer client.Close()
	prompts, err := dataset.Prompts(l.n, 32, 42, dataset.Measured)
	if err != nil {
		return metrics.Summary{}, err
	}
	schedule, err := arrival.Constant(l.rate, l.n)
	if err != nil {
		return metrics.Summary{}, err
	}
	target := loadgen.NewTarget(client, loadgen.Chat, "http://"+listener.Addr().String(), loadgen.Options{Model: "mock"}, loadgen.TextRequests(prompts, l.tokens))
	s := metrics.Summarize(loadgen.Run(ctx, target, loadgen.Config{Schedule: schedule, MaxConcurrency: l.limit}))
	if s.Completed == 0 && ctx.Err() == nil {
		return s, errors.New("selftest: no request to the server in this process succeeded")
	}
	return s, nil
}

const (
	exactTTFT   = 50 * time.Millisecond
	exactITL    = 10 * time.Millisecond
	exactTokens = 16
	exactRate   = 20.0
	burstSize   = 64
	burstTTFT   = 20 * time.Millisecond
	aimBurst    = 24.0 // ms
	aimRate     = 500.0
	aimChunks   = 200_000.0
	streams     = 16
)

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// within tells whether a figure is at most 1% off.
func within(truth float64) func(float64) bool {
	return func(got float64) bool { return math.Abs(got-truth) <= truth/100 }
}

// exactness measures latencies under a light load.
func (t *tester) exactness(ctx context.Context) ([]figure, error) {
	cfg := mockserver.Config{TTFT: exactTTFT, ITL: exactITL, Forget: true}
	s, err := measure(ctx, mockserver.New(cfg), load{n: max(int(exactRate*t.seconds), 2), tokens: exactTokens, rate: exactRate})
	if err != nil {
		return nil, err
	}
	e2e := exactTTFT + (exactTokens-1)*exactITL
	var out []figure
	for _, f := range []struct {
		what  string
		truth time.Duration
		got   float64
	}{
		{fmt.Sprintf("mean TTFT at %g req/s", exactRate), exactTTFT, s.TTFT.Mean}, {"P99 TTFT", exactTTFT, s.TTFT.P99}, {"mean TPOT", exactITL, s.TPOT.Mean},
		{"mean ITL", exactITL, s.ITL.Mean}, {"P99 ITL", exactITL, s.ITL.P99}, {"mean E2E", e2e, s.E2E.Mean},
	} {
		truth := millis(f.truth)
		near := func(got float64) bool { return math.Abs(got-truth) <= max(1, truth/100) }
		out = append(out, figure{what: f.what, unit: "ms", truth: truth, got: f.got, aim: "1 ms or 1%", reaches: near})
	}
	return out, nil
}

// burst measures the TTFT of many requests at once.
func (t *tester) burst(ctx context.Context) ([]figure, error) {
	server := mockserver.New(mockserver.Config{TTFT: burstTTFT, ITL: exactITL, Forget: true})
	s, err := measure(ctx, server, load{n: burstSize, tokens: 4, rate: math.Inf(1)})
	if err != nil {
		return nil, err
	}
	return []figure{{
		what: fmt.Sprintf("median TTFT of %d at once", burstSize), unit: "ms", truth: millis(burstTTFT), got: s.TTFT.Median,
		aim: fmt.Sprintf("at most %g ms", aimBurst), reaches: func(got float64) bool { return got <= aimBurst },
	}}, nil
}

// mostOpen keeps a rate that is too high from using up the files that a process may open.
const mostOpen = 256

func (t *tester) offered(ctx context.Context, rate float64) (metrics.Summary, error) {
	server := mockserver.New(mockserver.Config{TTFT: time.Millisecond, Forget: true})
	return measure(ctx, server, load{n: max(int(rate*t.seconds), 2), tokens: 1, rate: rate, limit: mostOpen})
}

// rate measures how a high rate is kept.
func (t *tester) rate(ctx context.Context) ([]figure, error) {
	s, err := t.offered(ctx, aimRate)
	if err != nil {
		return nil, err
	}
	return []figure{{what: fmt.Sprintf("rate that is sent of %g offered", aimRate), unit: "req/s", truth: aimRate, got: s.SentRate, aim: "1%", reaches: within(aimRate)}}, nil
}

// highestRate doubles the request rate until it is not held within 1%, or requests are
// released more than 5 ms late. 0 means that not even the first was held.
func (t *tester) highestRate(ctx context.Context) ([]figure, error) {
	held := 0.0
	for rate := 250.0; rate <= 16000; rate *= 2 {
		s, err := t.offered(ctx, rate)
		if err != nil {
			return nil, err
		}
		if s.Failed > 0 || !within(rate)(s.SentRate) || s.MaxLag > 5*time.Millisecond {
			break
		}
		held = rate
	}
	return []figure{{what: "highest rate that is held, 5 ms late at most", unit: "req/s", truth: math.NaN(), got: held}}, nil
}

// chunks reads streams as fast as they come.
func (t *tester) chunks(ctx context.Context) ([]figure, error) {
	tokens := max(int(aimChunks/streams*t.seconds), 1)
	s, err := measure(ctx, flood{}, load{n: streams, tokens: tokens, rate: math.Inf(1)})
	if err != nil {
		return nil, err
	}
	return []figure{{
		what: fmt.Sprintf("chunks read a second from %d streams", streams), unit: "/s", truth: math.NaN(), got: s.OutputThroughput,
		aim: fmt.Sprintf("%g", aimChunks), reaches: func(got float64) bool { return got >= aimChunks },
	}}, nil
}

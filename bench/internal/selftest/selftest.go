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
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/bench/internal/arrival"
	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

const description = `Measures a server with known delays, in this process, and prints how far the
figures are from the truth, which request rate this machine can hold, and how
many chunks per second it can read. Server and client share the CPU, so the
client alone does at least as well.`

// Program is the test as a program.
var Program = program.Program{Name: "selftest", Command: newCommand}

func newCommand() *cobra.Command {
	t := &tester{}
	cmd := &cobra.Command{
		Use:     "selftest",
		Short:   "How exact this load generator is on this machine",
		Long:    description,
		Example: "  go run ./bench/selftest",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(t.seconds > 0 && t.seconds <= 3600) {
				return program.Usage(fmt.Errorf("--seconds is %v: want more than 0 and at most 3600", t.seconds))
			}
			return t.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().Float64Var(&t.seconds, "seconds", 2, "length of each part")
	return cmd
}

type tester struct {
	seconds float64
	rows    [][]string
}

func (t *tester) run(ctx context.Context, stdout io.Writer) error {
	for _, part := range []func(context.Context) error{t.exactness, t.burst, t.rates, t.chunks} {
		if err := part(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return program.ErrInterrupted
		}
	}
	table := tablewriter.NewTable(stdout, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignLeft))
	table.Header("measured", "truth", "this client", "difference")
	if err := table.Bulk(t.rows); err != nil {
		return fmt.Errorf("selftest: %w", err)
	}
	return table.Render()
}

// load is what one part sends.
type load struct {
	n, tokens, limit int
	rate             float64
}

// measure runs a load against a server on the loopback interface.
func measure(ctx context.Context, cfg mockserver.Config, l load) (metrics.Summary, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return metrics.Summary{}, fmt.Errorf("selftest: %w", err)
	}
	cfg.Forget = true
	server := &http.Server{Handler: mockserver.New(cfg), ReadHeaderTimeout: time.Minute}
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

// add writes a row of milliseconds.
func (t *tester) add(what string, truth, got float64) {
	t.rows = append(t.rows, []string{what, fmt.Sprintf("%.2f ms", truth), fmt.Sprintf("%.2f ms", got), fmt.Sprintf("%+.2f ms", got-truth)})
}

const (
	exactTTFT   = 50 * time.Millisecond
	exactITL    = 10 * time.Millisecond
	exactTokens = 16
	exactRate   = 20.0
	burstSize   = 64
	burstTTFT   = 20 * time.Millisecond
	streams     = 16
)

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// exactness measures latencies under a light load.
func (t *tester) exactness(ctx context.Context) error {
	cfg := mockserver.Config{TTFT: exactTTFT, ITL: exactITL}
	s, err := measure(ctx, cfg, load{n: max(int(exactRate*t.seconds), 2), tokens: exactTokens, rate: exactRate})
	if err != nil {
		return err
	}
	where := fmt.Sprintf(" at %g req/s", exactRate)
	t.add("mean TTFT"+where, millis(exactTTFT), s.TTFT.Mean)
	t.add("P99 TTFT", millis(exactTTFT), s.TTFT.P99)
	t.add("mean TPOT", millis(exactITL), s.TPOT.Mean)
	t.add("mean ITL", millis(exactITL), s.ITL.Mean)
	t.add("P99 ITL", millis(exactITL), s.ITL.P99)
	t.add("mean E2E", millis(exactTTFT+(exactTokens-1)*exactITL), s.E2E.Mean)
	return nil
}

// burst measures the TTFT of many requests at once.
func (t *tester) burst(ctx context.Context) error {
	s, err := measure(ctx, mockserver.Config{TTFT: burstTTFT, ITL: exactITL}, load{n: burstSize, tokens: 4, rate: math.Inf(1)})
	if err != nil {
		return err
	}
	t.add(fmt.Sprintf("median TTFT of %d at once", burstSize), millis(burstTTFT), s.TTFT.Median)
	return nil
}

// rates doubles the request rate until it is not held within 1%, or requests are
// released more than 5 ms late.
func (t *tester) rates(ctx context.Context) error {
	held := 0.0
	for rate := 250.0; rate <= 16000; rate *= 2 {
		s, err := measure(ctx, mockserver.Config{TTFT: time.Millisecond}, load{n: max(int(rate*t.seconds), 2), tokens: 1, rate: rate})
		if err != nil {
			return err
		}
		if s.Failed > 0 || math.Abs(s.SentRate-rate) > rate/100 || s.MaxLag > 5*time.Millisecond {
			break
		}
		held = rate
	}
	text := fmt.Sprintf("%g req/s", held)
	if held == 0 {
		text = "less than 250 req/s"
	}
	t.rows = append(t.rows, []string{"request rate that is held", "within 1%, 5 ms late at most", text, ""})
	return nil
}

// chunks reads streams as fast as they come.
func (t *tester) chunks(ctx context.Context) error {
	tokens := max(int(4000*t.seconds), 1)
	s, err := measure(ctx, mockserver.Config{}, load{n: streams, tokens: tokens, rate: math.Inf(1)})
	if err != nil {
		return err
	}
	t.rows = append(t.rows, []string{fmt.Sprintf("chunks read from %d streams", streams), "as fast as they come", fmt.Sprintf("%.0f per second", s.OutputThroughput), ""})
	return nil
}

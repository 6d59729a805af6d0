package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/minisgl/minisgl/bench/internal/arrival"
	"github.com/minisgl/minisgl/bench/internal/curve"
	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/bench/internal/report"
)

const (
	backendName  = "sglang-oai-chat"
	warmupTokens = 32 // enough to touch every code path of a server
)

var errAllFailed = errors.New("no request succeeded")

// run does one run for each rate and prints the results.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	rates := o.rates
	if len(rates) == 0 {
		rates = program.Rates{o.rate}
	}
	for _, rate := range rates {
		if _, err := arrival.Poisson(float64(rate), o.numRequests, o.seed); err != nil {
			return program.Usage(fmt.Errorf("--rate: %w", err))
		}
	}
	if err := o.output.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.output.Close()) }()
	m, err := connect(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer m.http.Close()
	var points []curve.Point
	for i, rate := range rates {
		seed := o.seed + uint64(i) // prompts of its own for each rate
		result, records, err := m.measure(ctx, rate, seed)
		if err != nil {
			return err
		}
		if err := o.output.Write(stdout, result, records); err != nil {
			return err
		}
		switch {
		case result.Interrupted:
			return program.ErrInterrupted
		case result.Completed == 0:
			return errAllFailed
		}
		points = append(points, curve.Point{Load: float64(rate), Summary: result.Summary})
	}
	return draw(o, points, stdout)
}

// draw shows several rates together.
func draw(o *options, points []curve.Point, stdout io.Writer) error {
	if len(o.rates) == 0 {
		return nil
	}
	if err := curve.WriteText(stdout, curve.Rates, points); err != nil {
		return err
	}
	if o.plot == "" {
		return nil
	}
	return curve.WritePlot(o.plot, curve.Rates, points)
}

// meter is a server that can be measured.
type meter struct {
	o                *options
	http             *loadgen.HTTP
	model            string
	target           *loadgen.Target
	messages, stderr io.Writer
}

func connect(ctx context.Context, o *options, stderr io.Writer) (*meter, error) {
	m := &meter{o: o, messages: stderr, stderr: stderr}
	if o.quiet {
		m.messages = io.Discard
	}
	connections := o.numRequests
	if o.maxConcurrency > 0 {
		connections = min(connections, o.maxConcurrency)
	}
	header := map[string]string{}
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		header["Authorization"] = "Bearer " + key
	}
	m.http = loadgen.NewHTTP(loadgen.HTTPOptions{Header: header, Timeout: o.timeout, IdleTimeout: o.idleTimeout, Connections: connections})
	model, err := findModel(ctx, m.http, o, m.messages)
	if err != nil {
		m.http.Close()
		return nil, err
	}
	m.model = model
	m.target = loadgen.NewTarget(m.http, loadgen.Chat, o.url, loadgen.Options{Model: model}, nil)
	return m, nil
}

// measure offers one rate.
func (m *meter) measure(ctx context.Context, rate program.Rate, seed uint64) (*report.Result, []record.Record, error) {
	o := m.o
	schedule, err := arrival.Poisson(float64(rate), o.numRequests, seed)
	if err != nil {
		return nil, nil, program.Usage(fmt.Errorf("--rate: %w", err))
	}
	prompts, err := dataset.Prompts(o.numRequests, o.inputWords, seed, dataset.Measured)
	if err != nil {
		return nil, nil, err
	}
	if err := m.warmUp(ctx, seed); err != nil {
		return nil, nil, err
	}
	step, stop := program.Progress(m.stderr, o.numRequests, "Requests", o.quiet)
	cfg := loadgen.Config{Schedule: schedule, MaxConcurrency: o.maxConcurrency, OnDone: func(*record.Record) { step() }}
	records := loadgen.Run(ctx, m.target.WithRequests(loadgen.TextRequests(prompts, o.maxTokens)), cfg)
	stop()
	result := &report.Result{
		Backend:        backendName,
		Model:          m.model,
		Rate:           float64(rate),
		MaxConcurrency: o.maxConcurrency,
		NumRequests:    o.numRequests,
		MaxTokens:      o.maxTokens,
		InputWords:     o.inputWords,
		Seed:           seed,
		Interrupted:    ctx.Err() != nil,
		Summary:        metrics.Summarize(records),
	}
	return result, records, nil
}

// findModel waits for the server and returns the model to ask for.
func findModel(ctx context.Context, client *loadgen.HTTP, o *options, messages io.Writer) (string, error) {
	if o.readyTimeout == 0 && o.model != "" {
		return o.model, nil
	}
	models, err := client.WaitReady(ctx, o.url, o.readyTimeout, func(err error) {
		if o.readyTimeout > 0 {
			fmt.Fprintf(messages, "Waiting up to %v for the server at %s (%v)\n", o.readyTimeout, o.url, err)
		}
	})
	switch {
	case ctx.Err() != nil:
		return "", program.ErrInterrupted
	case err != nil && o.model != "" && loadgen.IsPermanent(err):
		fmt.Fprintf(messages, "The server does not list its models (%v); going on with --model %s\n", err, o.model)
		return o.model, nil
	case err != nil:
		return "", err
	case o.model != "":
		return o.model, nil
	case len(models) == 0:
		return "", fmt.Errorf("the server at %s lists no model: name one with --model", o.url)
	}
	return models[0], nil
}

// warmUp sends requests that are not measured. Their failure is only reported:
// the measurement shows failures in full.
func (m *meter) warmUp(ctx context.Context, seed uint64) error {
	o := m.o
	if o.warmup == 0 {
		return nil
	}
	prompts, err := dataset.Prompts(o.warmup, o.inputWords, seed, dataset.WarmUp)
	if err != nil {
		return err
	}
	schedule, err := arrival.Burst(o.warmup)
	if err != nil {
		return err
	}
	fmt.Fprintf(m.messages, "Warming up with %d request(s)\n", o.warmup)
	warm := m.target.WithRequests(loadgen.TextRequests(prompts, min(o.maxTokens, warmupTokens)))
	records := loadgen.Run(ctx, warm, loadgen.Config{Schedule: schedule, MaxConcurrency: o.maxConcurrency})
	if ctx.Err() != nil {
		return program.ErrInterrupted
	}
	for _, f := range metrics.Summarize(records).Failures {
		fmt.Fprintf(m.messages, "Warm-up: %d request(s) failed: %s: %s\n", f.Count, f.Label, f.First)
	}
	return nil
}

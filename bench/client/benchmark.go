package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/minisgl/minisgl/bench/internal/arrival"
	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/bench/internal/report"
)

const (
	backendName  = "sglang-oai-chat"
	warmupTokens = 32 // enough to touch every code path of a server
)

// benchmark does one run and prints its result.
func benchmark(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	schedule, err := arrival.Poisson(float64(o.rate), o.numRequests, o.seed)
	if err != nil {
		return usageError{fmt.Errorf("--rate: %w", err)}
	}
	prompts, err := dataset.Prompts(o.numRequests, o.inputWords, o.seed, dataset.Measured)
	if err != nil {
		return err
	}
	out, err := openOutput(o.outputFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	messages := stderr
	if o.quiet {
		messages = io.Discard
	}
	connections := o.numRequests
	if o.maxConcurrency > 0 {
		connections = min(connections, o.maxConcurrency)
	}
	client := loadgen.NewHTTP(loadgen.HTTPOptions{
		APIKey:      os.Getenv("OPENAI_API_KEY"),
		Timeout:     o.timeout,
		IdleTimeout: o.idleTimeout,
		Connections: connections,
	})
	defer client.Close()
	model, err := findModel(ctx, client, o, messages)
	if err != nil {
		return err
	}
	chat := loadgen.NewChat(client, o.url, model, prompts, o.maxTokens)
	if err := warmUp(ctx, chat, o, messages); err != nil {
		return err
	}
	cfg := loadgen.Config{Schedule: schedule, MaxConcurrency: o.maxConcurrency}
	stop := showProgress(&cfg, o, stderr)
	records := loadgen.Run(ctx, chat, cfg)
	stop()
	result := newResult(o, model, records, ctx.Err() != nil)
	if err := write(result, records, o, stdout, out); err != nil {
		return err
	}
	switch {
	case result.Interrupted:
		return errInterrupted
	case result.Completed == 0:
		return errAllFailed
	}
	return nil
}

// openOutput opens the result file before the run, so that a wrong path does
// not cost one. Without a path the result goes nowhere.
func openOutput(path string) (io.WriteCloser, error) {
	if path == "" {
		return nopCloser{io.Discard}, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, usageError{fmt.Errorf("--output-file: %w", err)}
	}
	return file, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

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
		return "", errInterrupted
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
func warmUp(ctx context.Context, chat *loadgen.Chat, o *options, messages io.Writer) error {
	if o.warmup == 0 {
		return nil
	}
	prompts, err := dataset.Prompts(o.warmup, o.inputWords, o.seed, dataset.WarmUp)
	if err != nil {
		return err
	}
	schedule, err := arrival.Burst(o.warmup)
	if err != nil {
		return err
	}
	fmt.Fprintf(messages, "Warming up with %d request(s)\n", o.warmup)
	warm := chat.WithPrompts(prompts, min(o.maxTokens, warmupTokens))
	records := loadgen.Run(ctx, warm, loadgen.Config{Schedule: schedule, MaxConcurrency: o.maxConcurrency})
	if ctx.Err() != nil {
		return errInterrupted
	}
	for _, f := range metrics.Summarize(records).Failures {
		fmt.Fprintf(messages, "Warm-up: %d request(s) failed: %s: %s\n", f.Count, f.Label, f.First)
	}
	return nil
}

// showProgress draws a bar while requests finish, if stderr is a terminal.
func showProgress(cfg *loadgen.Config, o *options, stderr io.Writer) (stop func()) {
	file, isFile := stderr.(*os.File)
	if o.quiet || !isFile || !term.IsTerminal(int(file.Fd())) {
		return func() {}
	}
	bar := progressbar.NewOptions(o.numRequests,
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionSetDescription("Requests"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	// A bar that cannot be drawn must not end a measurement.
	cfg.OnDone = func(*record.Record) { _ = bar.Add(1) }
	return func() { _ = bar.Clear() }
}

func newResult(o *options, model string, records []record.Record, interrupted bool) *report.Result {
	return &report.Result{
		Backend:        backendName,
		Model:          model,
		Rate:           float64(o.rate),
		MaxConcurrency: o.maxConcurrency,
		NumRequests:    o.numRequests,
		MaxTokens:      o.maxTokens,
		InputWords:     o.inputWords,
		Seed:           o.seed,
		Interrupted:    interrupted,
		Summary:        metrics.Summarize(records),
	}
}

func write(result *report.Result, records []record.Record, o *options, stdout, out io.Writer) error {
	if err := report.WriteTable(stdout, result); err != nil {
		return err
	}
	if err := report.WriteNotes(stdout, result); err != nil {
		return err
	}
	if !o.outputDetails {
		records = nil
	}
	return report.WriteJSON(out, result, records)
}

// Package serving is sglang's serving benchmark: its flags, datasets, backends,
// random numbers, result table and result file, on this project's load generator.
package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/arrival"
	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/lora"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/bench/internal/report"
	"github.com/minisgl/minisgl/bench/internal/scrape"
	"github.com/minisgl/minisgl/bench/internal/tokens"
)

// ErrAllFailed and ErrTooManyFailed end a run whose result was printed.
var (
	ErrAllFailed     = errors.New("no request succeeded")
	ErrTooManyFailed = errors.New("more requests failed than --max-error-rate allows")
)

const (
	warmupTokens = 32   // enough to touch every code path of a server
	warmupWords  = 1024 // longest prompt of the warm-up
	settle       = time.Second
)

// Bench is a server that can be measured.
type Bench struct {
	o        *Options
	http     *loadgen.HTTP
	model    string
	tok      tokens.Tokenizer // nil if there is none
	target   *loadgen.Target
	messages io.Writer
	stderr   io.Writer
	loras    lora.Adapters // the next in turn is this server's
}

// Open waits for the server and finds out what it serves. o must have been
// checked. Messages go to stderr. Close frees what it holds.
func Open(ctx context.Context, o *Options, stderr io.Writer) (*Bench, error) {
	b := &Bench{o: o, loras: o.loras, messages: stderr, stderr: stderr}
	if o.Quiet {
		b.messages = io.Discard
	}
	connections := o.Load.NumPrompts
	if o.Load.MaxConcurrency > 0 {
		connections = min(connections, o.Load.MaxConcurrency)
	}
	b.http = loadgen.NewHTTP(loadgen.HTTPOptions{
		Header: authHeader(o.header), Timeout: o.Timeout, IdleTimeout: o.IdleTimeout,
		Connections: connections, NewConnections: o.NewConnections, Dial: o.Dial,
	})
	if err := b.prepare(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// authHeader adds the key of the environment to the headers.
func authHeader(header map[string]string) map[string]string {
	out := map[string]string{}
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		out["Authorization"] = "Bearer " + key
	} else if key := os.Getenv("API_KEY"); key != "" {
		out["Authorization"] = key
	}
	for key, value := range header {
		out[key] = value
	}
	return out
}

// Close frees connections and the tokenizer.
func (b *Bench) Close() {
	b.http.Close()
	if b.tok != nil {
		_ = b.tok.Close() // frees memory; nothing to save
	}
}

func (b *Bench) prepare(ctx context.Context) error {
	if err := b.findModel(ctx); err != nil {
		return err
	}
	if err := b.findTokenizer(ctx); err != nil {
		return err
	}
	opts := loadgen.Options{
		Model: b.model, NoStream: b.o.NoStream, KeepEOS: b.o.NoIgnoreEOS,
		Temperature: b.o.Temperature, TopP: b.o.TopP, Extra: b.o.extra,
	}
	b.target = loadgen.NewTarget(b.http, b.o.backend.api, b.o.base, opts, nil)
	return nil
}

func (b *Bench) findModel(ctx context.Context) error {
	b.model = b.o.ServedModelName
	if b.model == "" {
		b.model = b.o.Model
	}
	nameless := b.o.backend.api == loadgen.TensorRT
	if b.o.ReadyTimeout == 0 && (b.model != "" || nameless) || nameless {
		return nil
	}
	timeout := time.Duration(b.o.ReadyTimeout) * time.Second
	models, err := b.http.WaitReady(ctx, b.o.base, timeout, func(err error) {
		fmt.Fprintf(b.messages, "Waiting up to %v for the server at %s (%v)\n", timeout, b.o.base, err)
	})
	switch {
	case ctx.Err() != nil:
		return program.ErrInterrupted
	case err != nil && loadgen.IsPermanent(err) && (b.model != "" || b.o.backend.api == loadgen.Generate):
		fmt.Fprintf(b.messages, "The server does not list its models (%v)\n", err)
	case err != nil:
		return err
	case b.model == "" && len(models) == 0:
		return fmt.Errorf("the server at %s lists no model: name one with --model", b.o.base)
	case b.model == "":
		b.model = models[0]
	}
	return nil
}

// findTokenizer takes the one that was named, else the model's, else the server's.
func (b *Bench) findTokenizer(ctx context.Context) (err error) {
	if b.o.Tokenizer != "" && tokens.Find(b.o.Tokenizer) == "" {
		fmt.Fprintf(b.messages, "No tokenizer %s on this machine; asking the server\n", b.o.Tokenizer)
	}
	name := cmp.Or(b.o.Tokenizer, b.o.Model, b.model)
	b.tok, err = tokens.Choose(ctx, b.http, name, b.o.base, b.model, b.o.Dataset.vocab)
	return err
}

// Run is one measurement.
type Run struct {
	Result  *report.Result
	Records []record.Record
}

// Measure offers a load and returns what was observed. An interrupted run has a
// partial result.
func (b *Bench) Measure(ctx context.Context, load Load) (*Run, error) {
	off, err := b.offer(load)
	if err != nil {
		return nil, err
	}
	if err := b.warmUp(ctx, load, off.requests[0]); err != nil {
		return nil, err
	}
	if err := b.flush(ctx); err != nil {
		return nil, err
	}
	if err := b.startProfile(ctx); err != nil {
		return nil, err
	}
	step, stop := program.Progress(b.stderr, len(off.requests), "Requests", b.o.Quiet)
	cfg := loadgen.Config{Schedule: off.schedule, MaxConcurrency: load.MaxConcurrency, After: off.after, OnDone: func(r *record.Record) {
		step()
		if b.o.PrintRequests {
			fmt.Fprintln(b.stderr, r)
		}
	}}
	records := loadgen.Run(ctx, b.target.WithRequests(off.requests), cfg)
	stop()
	interrupted := ctx.Err() != nil
	b.stopProfile(context.WithoutCancel(ctx))
	b.retokenize(records)
	run := &Run{Result: b.result(load, off, records), Records: records}
	run.Result.Interrupted = interrupted
	if !interrupted {
		b.askServer(ctx, run.Result)
	}
	return run, nil
}

// warmUp sends requests that are not measured, of prompts that are not either.
func (b *Bench) warmUp(ctx context.Context, load Load, like loadgen.Request) error {
	if b.o.Warmup == 0 {
		return nil
	}
	words := min(max(like.InputLen, len(strings.Fields(like.Text)), len(like.IDs), 1), warmupWords)
	prompts, err := dataset.Prompts(b.o.Warmup, words, uint64(load.Seed), dataset.WarmUp)
	if err != nil {
		return err
	}
	schedule, err := arrival.Burst(b.o.Warmup)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.messages, "Warming up with %d request(s)\n", b.o.Warmup)
	target := b.target.WithRequests(loadgen.TextRequests(prompts, min(max(like.MaxTokens, 1), warmupTokens)))
	s := metrics.Summarize(loadgen.Run(ctx, target, loadgen.Config{Schedule: schedule, MaxConcurrency: load.MaxConcurrency}))
	if ctx.Err() != nil {
		return program.ErrInterrupted
	}
	for _, f := range s.Failures {
		fmt.Fprintf(b.messages, "Warm-up: %d request(s) failed: %s: %s\n", f.Count, f.Label, f.First)
	}
	return nil
}

// retokenize counts the tokens of the answers' text, as sglang's second count.
func (b *Bench) retokenize(records []record.Record) {
	if b.tok == nil || b.o.NoRetokenize {
		return
	}
	for i := range records {
		if !records[i].OK() {
			continue
		}
		ids, err := b.tok.Encode(records[i].Text, false)
		if err != nil {
			fmt.Fprintf(b.messages, "Answers are not retokenized: %v\n", err)
			for j := range records {
				records[j].Retokenized = -1
			}
			return
		}
		records[i].Retokenized = len(ids)
	}
}

func (b *Bench) result(load Load, off *offer, records []record.Record) *report.Result {
	d := &b.o.Dataset
	r := &report.Result{
		Backend: b.o.Backend, Model: b.model, Rate: load.Rate, MaxConcurrency: load.MaxConcurrency,
		NumRequests: len(off.requests), Seed: uint64(load.Seed), Dataset: d.name, Trace: off.trace, Tag: b.o.Tag,
		Lens:        &report.Lens{ShareGPTOutput: d.shareGPTOutput, RandomInput: d.random.InputLen, RandomOutput: d.random.OutputLen, RangeRatio: d.random.RangeRatio},
		CacheReport: b.o.CacheReport, Summary: metrics.Summarize(records),
	}
	if r.Retokenized >= 0 {
		r.Retokenizer = "by " + b.tok.Source()
	}
	if len(b.o.slos) > 0 {
		g := metrics.Judge(records, b.o.slos, r.Duration)
		r.Goodput = &g
	}
	r.Notes = [][2]string{{"Prompts", b.prompts()}, {"Load", off.digest()}, {"Connections", b.connections()}}
	talks := len(off.talks())
	if talks < len(off.requests) {
		r.Notes = append(r.Notes, [2]string{"Conversations", fmt.Sprintf("%d of %d turns in all; a turn is sent when the one before is answered, and holds its answer", talks, len(off.requests))})
	}
	if talks < load.NumPrompts && load.NumPrompts < program.MaxRequests && d.name != "generated-shared-prefix" {
		r.Notes = append(r.Notes, [2]string{"Dataset", fmt.Sprintf("has only %d usable requests, %d were asked for", talks, load.NumPrompts)})
	}
	return r
}

func (b *Bench) connections() string {
	if b.o.NewConnections {
		return "a new one for each request"
	}
	return "kept alive, and opened before the start for requests that are due then; sglang's own client opens one for each request"
}

// prompts says how prompts came about and how their length is known.
func (b *Bench) prompts() string {
	d := &b.o.Dataset
	form := "text"
	if d.tokenizePrompt {
		form = "token ids"
	}
	switch {
	case b.tok != nil:
		return form + ", lengths by " + b.tok.Source()
	case d.tokenizePrompt:
		return fmt.Sprintf("token ids below %d; no tokenizer in use", d.vocab)
	case slices.Contains([]string{"random-ids", "generated-shared-prefix", "mooncake", "qwen", "bailian", "burstgpt"}, d.name) || d.name == "multi-turn" && d.path == "":
		return "built-in words, one for each token; no tokenizer in use, lengths as the server counts them"
	}
	return "text; no tokenizer in use, lengths as the server counts them, those of answers estimated from words"
}

// Verdict returns the error that a run ends with.
func (b *Bench) Verdict(r *report.Result) error {
	switch {
	case r.Interrupted:
		return program.ErrInterrupted
	case r.Completed == 0:
		return ErrAllFailed
	case float64(r.Failed) > math.Min(b.o.MaxErrorRate, 1)*float64(r.Sent):
		return ErrTooManyFailed
	}
	return nil
}

// Watch samples the server's metrics each interval until stop is called.
func (b *Bench) Watch(ctx context.Context, interval time.Duration) (stop func() scrape.Load) {
	return scrape.Watch(ctx, b.http, b.o.base, interval)
}

// Metrics reads the server's metrics; nil if it has none.
func (b *Bench) Metrics(ctx context.Context) scrape.Sample {
	return scrape.Fetch(ctx, b.http, b.o.base)
}

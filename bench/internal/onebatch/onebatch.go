// Package onebatch measures single forward passes of the engine: the prefill of
// one batch, and each of its decode steps. The output is that of sglang's
// one-batch benchmark.
package onebatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/stats"
	"github.com/minisgl/minisgl/go/llm"
)

const examples = `  go run ./bench/onebatch --batch-size 1 4 16 --input-len 128 --output-len 32`

const description = `Runs one batch at a time, in this process: a forward pass over its prompts, then
one pass for each further token, and prints how long each took. Several batch
sizes or lengths are all combined.

A table then splits the prefill and the mean decode step into attention (with its
projections), MLP, norms, head, sampling and embedding, and what lies between the
operations. --ops=false leaves it out.

The prefix cache is off. Prompts beyond --max-prefill-length are computed in
chunks, whose times are added up.`

// Program is the benchmark as a program.
var Program = program.Program{Name: "onebatch", Command: newCommand, Lists: []string{"batch-size", "input-len", "output-len"}}

type config struct {
	engine                llm.Config
	name                  string
	batches, inputs, outs []int
	resultFile            string
	logStep               int
	seed                  uint64
	ops                   bool
}

func newCommand() *cobra.Command {
	c := &config{}
	return program.Spec{
		Name: "onebatch", Short: "The time of single forward passes: prefill and decode of one batch", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.StringVar(&c.name, "run-name", "default", "name of the run in the result file")
	f.IntSliceVar(&c.batches, "batch-size", []int{1}, "requests of the batch; several may follow")
	f.IntSliceVar(&c.inputs, "input-len", []int{1024}, "tokens of each prompt; several may follow")
	f.IntSliceVar(&c.outs, "output-len", []int{16}, "tokens of each answer; several may follow")
	f.StringVar(&c.resultFile, "result-filename", "", "append the results to this file, as lines of JSON")
	f.IntVar(&c.logStep, "log-decode-step", 0, "print each so-manieth decode step, beside the first five; 0 prints no more")
	f.Uint64Var(&c.seed, "seed", 42, "seed of the prompts")
	f.BoolVar(&c.ops, "ops", true, "split each forward pass into its parts")
	engine.Define(f, &c.engine)
}

func (c *config) check(*pflag.FlagSet) error {
	for flag, list := range map[string][]int{"batch-size": c.batches, "input-len": c.inputs, "output-len": c.outs} {
		for _, v := range list {
			if v < 1 || v > program.MaxTokens {
				return fmt.Errorf("--%s: want numbers from 1 to %d, got %d", flag, program.MaxTokens, v)
			}
		}
		if len(list) == 0 {
			return fmt.Errorf("--%s: want a number", flag)
		}
	}
	if c.logStep < 0 {
		return fmt.Errorf("--log-decode-step is %d: want 0 or more", c.logStep)
	}
	return nil
}

// result is a line of the result file, with sglang's keys. Times are in seconds.
type result struct {
	RunName          string   `json:"run_name"`
	BatchSize        int      `json:"batch_size"`
	InputLen         int      `json:"input_len"`
	OutputLen        int      `json:"output_len"`
	Prefill          float64  `json:"prefill_latency"`
	PrefillRate      float64  `json:"prefill_throughput"`
	MedianDecode     *float64 `json:"median_decode_latency"` // null if there was no step
	MedianDecodeRate *float64 `json:"median_decode_throughput"`
	Total            float64  `json:"total_latency"`
	TotalRate        float64  `json:"overall_throughput"`
	PrefillParts     parts    `json:"prefill_parts,omitempty"`
	DecodeParts      parts    `json:"decode_parts,omitempty"` // of a step, on average

	steps []float64
}

func (c *config) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	out, err := program.OpenOutput("result-filename", c.resultFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	batch, input, output := slices.Max(c.batches), slices.Max(c.inputs), slices.Max(c.outs)
	cfg := c.engine
	cfg.CacheType = "naive"
	cfg.MaxRunningReq = max(cfg.MaxRunningReq, batch)
	if cfg.MaxExtendTokens == 0 {
		cfg.MaxExtendTokens = batch * input
	}
	eng, err := engine.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer eng.Close()
	info := eng.Info()
	if input+output > info.MaxSeqLen || batch*(input+output) > info.NumPages*info.PageSize {
		return program.Usage(fmt.Errorf("%d requests of %d + %d tokens do not fit: the model takes %d of one request, the KV cache %d in all", batch, input, output, info.MaxSeqLen, info.NumPages*info.PageSize))
	}
	m := &meter{c: c, eng: eng}
	if c.ops {
		m.timer = new(llm.OpTimer)
		if err := eng.TimeOps(m.timer); err != nil {
			m.timer = nil
			fmt.Fprintf(stderr, "No split into parts: %v\n", err)
		}
	}
	fmt.Fprintf(stdout, "max_total_num_tokens=%d\nWarmup ...\n", info.NumPages*info.PageSize)
	warm, err := m.measure(ctx, c.batches[0], c.inputs[0], min(warmupOutput, c.outs[0]))
	if err == nil {
		err = c.print(stdout, warm)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "Benchmark ...")
	for _, batch := range c.batches {
		for _, input := range c.inputs {
			for _, output := range c.outs {
				r, err := m.measure(ctx, batch, input, output)
				if err != nil {
					return err
				}
				if err := errors.Join(c.print(stdout, r), r.printParts(stdout), json.NewEncoder(out).Encode(r)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const (
	warmupOutput = 32
	shownSteps   = 5
)

// meter measures on one engine.
type meter struct {
	c     *config
	eng   *llm.LLM
	timer *llm.OpTimer // nil if operations are not timed
}

// measure times the forward passes of one batch.
func (m *meter) measure(ctx context.Context, batch, input, output int) (*result, error) {
	rng := rand.New(rand.NewPCG(m.c.seed, uint64(batch)))
	requests := make([]llm.Request, batch)
	for i := range requests {
		requests[i] = llm.Request{TokenIDs: engine.RandomIDs(rng, m.eng, input), Params: engine.Greedy(output)}
	}
	var p passes
	// The hook runs in the engine's goroutine; Generate returns after it.
	err := m.eng.SetForwardHook(func(b llm.BatchInfo, forward func() error) error {
		begin := time.Now()
		err := forward()
		p.add(b.Prefill, time.Since(begin).Seconds(), m.timer)
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = m.eng.Generate(ctx, requests, nil)
	if err = program.Interrupted(ctx, errors.Join(err, m.eng.SetForwardHook(nil))); err != nil {
		return nil, err
	}
	return newResult(m.c.name, batch, input, output, &p), nil
}

// passes are the forward passes of one batch, in seconds.
type passes struct {
	prefill                   float64
	steps                     []float64
	prefillParts, decodeParts parts
}

// add counts one forward pass.
func (p *passes) add(prefill bool, seconds float64, timer *llm.OpTimer) {
	of := &p.decodeParts
	if prefill {
		p.prefill += seconds
		of = &p.prefillParts
	} else {
		p.steps = append(p.steps, seconds)
	}
	if timer == nil {
		return
	}
	if *of == nil {
		*of = parts{}
	}
	of.add(timer.Take(), seconds)
}

func newResult(name string, batch, input, output int, p *passes) *result {
	r := &result{
		RunName: name, BatchSize: batch, InputLen: input, OutputLen: output,
		Prefill: p.prefill, PrefillRate: float64(batch*input) / p.prefill, Total: p.prefill,
		PrefillParts: p.prefillParts, DecodeParts: p.decodeParts.mean(len(p.steps)), steps: p.steps,
	}
	for _, s := range p.steps {
		r.Total += s
	}
	if len(p.steps) > 0 {
		median := stats.Median(p.steps)
		rate := float64(batch) / median
		r.MedianDecode, r.MedianDecodeRate = &median, &rate
	}
	r.TotalRate = float64(batch*(input+output)) / r.Total
	return r
}

func (c *config) print(w io.Writer, r *result) error {
	text := fmt.Sprintf("Prefill. latency: %6.5f s, throughput: %9.2f token/s\n", r.Prefill, r.PrefillRate)
	for i, s := range r.steps {
		if i < shownSteps || c.logStep > 0 && i%c.logStep == 0 {
			text += fmt.Sprintf("Decode %d. Batch size: %d, latency: %6.5f s, throughput: %9.2f token/s\n", i, r.BatchSize, s, float64(r.BatchSize)/s)
		}
	}
	if r.MedianDecode != nil {
		text += fmt.Sprintf("Decode.  median latency: %6.5f s, median throughput: %9.2f token/s\n", *r.MedianDecode, *r.MedianDecodeRate)
	}
	text += fmt.Sprintf("Total. latency: %6.3f s, throughput: %9.2f token/s\n", r.Total, r.TotalRate)
	_, err := io.WriteString(w, text)
	return err
}

func (r *result) printParts(w io.Writer) error {
	if r.PrefillParts == nil {
		return nil
	}
	return writeParts(w, r.PrefillParts, r.DecodeParts)
}

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

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/stats"
	"github.com/minisgl/minisgl/go/llm"
)

const examples = `  go run ./bench/onebatch --batch-size 1 4 16 --input-len 128 --output-len 32`

const description = `Runs one batch at a time, in this process: a forward pass over its prompts, then
one pass for each further token, and prints how long each took. Several batch
sizes or lengths are all combined.

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
}

func newCommand() *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use:     "onebatch",
		Short:   "The time of single forward passes: prefill and decode of one batch",
		Long:    description,
		Example: examples,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(); err != nil {
				return program.Usage(err)
			}
			return c.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.name, "run-name", "default", "name of the run in the result file")
	f.IntSliceVar(&c.batches, "batch-size", []int{1}, "requests of the batch; several may follow")
	f.IntSliceVar(&c.inputs, "input-len", []int{1024}, "tokens of each prompt; several may follow")
	f.IntSliceVar(&c.outs, "output-len", []int{16}, "tokens of each answer; several may follow")
	f.StringVar(&c.resultFile, "result-filename", "", "append the results to this file, as lines of JSON")
	f.IntVar(&c.logStep, "log-decode-step", 0, "print each so-manieth decode step, beside the first five; 0 prints no more")
	f.Uint64Var(&c.seed, "seed", 42, "seed of the prompts")
	engine.Define(f, &c.engine)
	return cmd
}

func (c *config) check() error {
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
}

func (c *config) run(ctx context.Context, stdout io.Writer) (err error) {
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
	fmt.Fprintf(stdout, "max_total_num_tokens=%d\nWarmup ...\n", info.NumPages*info.PageSize)
	if _, err := c.measure(ctx, eng, c.batches[0], c.inputs[0], min(warmupOutput, c.outs[0]), stdout); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "Benchmark ...")
	for _, batch := range c.batches {
		for _, input := range c.inputs {
			for _, output := range c.outs {
				r, err := c.measure(ctx, eng, batch, input, output, stdout)
				if err != nil {
					return err
				}
				if err := json.NewEncoder(out).Encode(r); err != nil {
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

// measure times the forward passes of one batch.
func (c *config) measure(ctx context.Context, eng *llm.LLM, batch, input, output int, stdout io.Writer) (*result, error) {
	rng := rand.New(rand.NewPCG(c.seed, uint64(batch)))
	requests := make([]llm.Request, batch)
	for i := range requests {
		ids := make([]int32, input)
		for j := range ids {
			ids[j] = rng.Int32N(int32(eng.Info().VocabSize))
		}
		params := llm.DefaultSampling()
		params.MaxTokens, params.IgnoreEOS = output, true
		requests[i] = llm.Request{TokenIDs: ids, Params: params}
	}
	prefill, steps := 0.0, []float64(nil)
	// The hook runs in the engine's goroutine; Generate returns after it.
	err := eng.SetForwardHook(func(b llm.BatchInfo, forward func() error) error {
		begin := time.Now()
		err := forward()
		took := time.Since(begin).Seconds()
		if b.Prefill {
			prefill += took
		} else {
			steps = append(steps, took)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = eng.Generate(ctx, requests, nil)
	if ctx.Err() != nil {
		return nil, program.ErrInterrupted
	}
	if err = errors.Join(err, eng.SetForwardHook(nil)); err != nil {
		return nil, err
	}
	r := newResult(c.name, batch, input, output, prefill, steps)
	return r, c.print(stdout, r, steps)
}

func newResult(name string, batch, input, output int, prefill float64, steps []float64) *result {
	r := &result{RunName: name, BatchSize: batch, InputLen: input, OutputLen: output, Prefill: prefill, PrefillRate: float64(batch*input) / prefill, Total: prefill}
	for _, s := range steps {
		r.Total += s
	}
	if len(steps) > 0 {
		median := stats.Median(steps)
		rate := float64(batch) / median
		r.MedianDecode, r.MedianDecodeRate = &median, &rate
	}
	r.TotalRate = float64(batch*(input+output)) / r.Total
	return r
}

func (c *config) print(w io.Writer, r *result, steps []float64) error {
	text := fmt.Sprintf("Prefill. latency: %6.5f s, throughput: %9.2f token/s\n", r.Prefill, r.PrefillRate)
	for i, s := range steps {
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

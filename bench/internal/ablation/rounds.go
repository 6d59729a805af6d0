package ablation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/go/llm"
)

// baseline is the name of the configuration that the others are changes of.
const baseline = "baseline"

// configuration is a setting of the engine, and what was measured of it.
type configuration struct {
	name string
	cfg  llm.Config
	runs []metrics.Summary // a round each
}

// runner starts an engine, gives it the load and returns the figures, and the
// tokens of each request.
type runner func(context.Context, llm.Config) (metrics.Summary, [][]int32, error)

// line is a measurement in the result file; the figures have sglang's keys.
type line struct {
	Configuration string  `json:"configuration"`
	Round         int     `json:"round"`
	Completed     int     `json:"completed"`
	InputTokens   int     `json:"total_input_tokens"`
	OutputTokens  int     `json:"total_output_tokens"`
	CachedTokens  int     `json:"cached_tokens"` // of the prompts, found in the prefix cache
	Seconds       float64 `json:"duration"`
	Output        float64 `json:"output_throughput"`
	TTFT          float64 `json:"median_ttft_ms"`
	P99TTFT       float64 `json:"p99_ttft_ms"`
	TPOT          float64 `json:"median_tpot_ms"`
	ITL           float64 `json:"median_itl_ms"`
}

// rotate measures all configurations in turn, round after round. A start of the
// baseline before that does not count: a process's first reads the model from the
// disk and is slower.
func (c *config) rotate(ctx context.Context, out, stderr io.Writer) error {
	fmt.Fprintln(stderr, "warming up: baseline ...")
	_, right, err := c.measure(ctx, c.base)
	if err != nil {
		return program.Interrupted(ctx, fmt.Errorf("ablation: %s: %w", baseline, err))
	}
	file := json.NewEncoder(out)
	for round := range c.rounds {
		for i, conf := range c.list {
			fmt.Fprintf(stderr, "round %d of %d, %d of %d: %s ...\n", round+1, c.rounds, i+1, len(c.list), conf.name)
			s, tokens, err := c.measure(ctx, conf.cfg)
			if err != nil {
				return program.Interrupted(ctx, fmt.Errorf("ablation: %s: %w", conf.name, err))
			}
			if err := sameTokens(right, tokens); err != nil {
				return fmt.Errorf("ablation: round %d, %s: %w", round+1, conf.name, err)
			}
			conf.runs = append(conf.runs, s)
			err = file.Encode(line{
				conf.name, round + 1, s.Completed, s.InputTokens, s.OutputTokens, s.CachedTokens, s.Duration.Seconds(),
				s.OutputThroughput, s.TTFT.Median, s.TTFT.P99, s.TPOT.Median, s.ITL.Median,
			})
			if err != nil {
				return fmt.Errorf("ablation: --output-file: %w", err)
			}
		}
	}
	return nil
}

// sameTokens is an error if a request's tokens are not those that it had first.
func sameTokens(right, got [][]int32) error {
	if slices.EqualFunc(right, got, slices.Equal) {
		return nil
	}
	for i := range min(len(right), len(got)) {
		for k := range min(len(right[i]), len(got[i])) {
			if a, b := right[i][k], got[i][k]; a != b {
				return fmt.Errorf("token %d of request %d is %d, but the baseline's was %d; no option may change tokens, so this is a bug", k, i, b, a)
			}
		}
		if a, b := len(right[i]), len(got[i]); a != b {
			return fmt.Errorf("request %d has %d tokens, but the baseline's had %d; no option may change tokens, so this is a bug", i, b, a)
		}
	}
	return fmt.Errorf("%d requests were answered, but %d of the baseline's; this is a bug", len(got), len(right))
}

// runEngine is the runner that measures the engine.
func (c *config) runEngine(ctx context.Context, cfg llm.Config) (metrics.Summary, [][]int32, error) {
	eng, err := engine.Open(ctx, cfg)
	if err != nil {
		return metrics.Summary{}, nil, err
	}
	defer eng.Close()
	if limit := eng.Info().MaxSeqLen; c.input+c.output > limit {
		return metrics.Summary{}, nil, program.Usage(fmt.Errorf("--input %d and --output %d: the engine takes %d tokens of a request; lower them or raise --num-pages", c.input, c.output, limit))
	}
	rng := rand.New(rand.NewPCG(c.seed, 0))
	shared := engine.RandomIDs(rng, eng, c.shared)
	prompt := func() llm.Request {
		own := engine.RandomIDs(rng, eng, c.input-c.shared)
		return llm.Request{TokenIDs: slices.Concat(shared, own), Params: engine.Greedy(c.output)}
	}
	if _, err := eng.Generate(ctx, []llm.Request{prompt()}, nil); err != nil { // warms up, and leaves the shared tokens in the prefix cache
		return metrics.Summary{}, nil, err
	}
	requests := make([]llm.Request, c.requests)
	for i := range requests {
		requests[i] = prompt()
	}
	return burst(ctx, eng, requests)
}

// burst submits all requests at once and reads their tokens as they come.
func burst(ctx context.Context, eng *llm.LLM, requests []llm.Request) (metrics.Summary, [][]int32, error) {
	ctx, fail := context.WithCancelCause(ctx) // by the first request that fails
	defer fail(nil)
	records, tokens := make([]record.Record, len(requests)), make([][]int32, len(requests))
	var wg sync.WaitGroup
	start := time.Now()
	for i, req := range requests {
		s, err := eng.Stream(ctx, req)
		if err != nil {
			fail(err)
			break
		}
		wg.Go(func() {
			r := &records[i]
			*r = record.Record{Index: i, InputLen: len(req.TokenIDs), MaxTokens: req.Params.MaxTokens, Retokenized: -1, FirstChunk: 1}
			var err error
			tokens[i], err = read(ctx, s, func(_ int, ev llm.Event) {
				r.Tokens, r.CachedTokens = append(r.Tokens, time.Since(start)), ev.Usage.CachedTokens
			})
			if r.Done = time.Since(start); err != nil {
				fail(err)
			}
		})
	}
	wg.Wait()
	return metrics.Summarize(records), tokens, context.Cause(ctx)
}

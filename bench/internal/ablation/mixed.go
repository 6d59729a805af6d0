package ablation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/go/llm"
)

// intrusion is a load of streams that run while long prompts arrive.
type intrusion struct {
	model                               string
	streams, output, prompts, promptLen int
	chunks                              []int
	seed                                uint64
}

func mixedCommand() *cobra.Command {
	c := intrusion{}
	return program.Spec{
		Name: "mixed", Short: "Running streams while long prompts arrive, with prompts alone and mixed into decode batches",
		Examples: "  go run ./bench/ablation mixed\n  go run ./bench/ablation mixed --chunks 0,32,128 --prompt 1024",
		Define:   c.define, Check: c.check, Run: c.compare,
	}.Command()
}

func (c *intrusion) define(f *pflag.FlagSet) {
	f.StringVar(&c.model, "model", "smollm2-135m", "the model: a name, a directory or a .gguf file")
	f.IntVar(&c.streams, "streams", 4, "streams that run")
	f.IntVar(&c.output, "output", 128, "tokens of each stream")
	f.IntVar(&c.prompts, "prompts", 3, "long prompts that arrive")
	f.IntVar(&c.promptLen, "prompt", 512, "tokens of each long prompt")
	f.IntSliceVar(&c.chunks, "chunks", []int{0, 32, 128}, "values of --mixed-prefill-tokens; 0: prompts run alone")
	f.Uint64Var(&c.seed, "seed", 42, "of the random tokens")
}

func (c *intrusion) check(*pflag.FlagSet) error {
	if c.streams < 1 || c.output < 2 || c.prompts < 1 || c.promptLen < 1 || len(c.chunks) == 0 {
		return errors.New("--streams, --prompts, --prompt and --chunks must not be empty or below 1, --output not below 2")
	}
	return nil
}

func (c *intrusion) compare(ctx context.Context, stdout, stderr io.Writer) error {
	t := newTable(stdout)
	t.Header("mixed tokens", "ITL median (ms)", "P99 (ms)", "max (ms)", "TTFT of long prompts, median (ms)", "all (s)")
	for _, chunk := range c.chunks {
		fmt.Fprintf(stderr, "%d streams, %d prompts of %d tokens, mixed %d ...\n", c.streams, c.prompts, c.promptLen, chunk)
		row, err := c.run(ctx, chunk)
		if err == nil {
			err = t.Append(row)
		}
		if err != nil {
			return err
		}
	}
	return t.Render()
}

// run measures one setting and returns its row.
func (c *intrusion) run(ctx context.Context, chunk int) ([]string, error) {
	room := max(c.output+64, c.promptLen+16)
	eng, err := engine.Open(ctx, llm.Config{
		Model: c.model, MixedTokens: &chunk, MaxRunningReq: c.streams + c.prompts, CacheType: "naive",
		MaxSeqLenOverride: room, NumPageOverride: room * (c.streams + c.prompts),
	})
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	rng := rand.New(rand.NewPCG(c.seed, 0))
	start := time.Now()
	type result struct {
		times []time.Duration
		long  bool
		err   error
	}
	results := make(chan result)
	launch := func(prompt, output int, long bool) {
		ids := engine.RandomIDs(rng, eng, prompt)
		go func() {
			times, err := clock(ctx, eng, ids, output)
			results <- result{times, long, err}
		}()
	}
	for range c.streams {
		launch(16, c.output, false)
	}
	for range c.prompts {
		time.Sleep(200 * time.Millisecond)
		launch(c.promptLen, 2, true)
	}
	var gaps, ttft []float64
	for range c.streams + c.prompts {
		r := <-results
		err = errors.Join(err, r.err)
		if r.long && len(r.times) > 0 {
			ttft = append(ttft, float64(r.times[0])/1e6)
		}
		for i := 1; i < len(r.times) && !r.long; i++ {
			gaps = append(gaps, float64(r.times[i]-r.times[i-1])/1e6)
		}
	}
	if err != nil {
		return nil, err
	}
	itl := metrics.Describe(gaps)
	return []string{
		fmt.Sprint(chunk), fmt.Sprintf("%.1f", itl.Median), fmt.Sprintf("%.1f", itl.P99), fmt.Sprintf("%.1f", itl.Max),
		fmt.Sprintf("%.0f", metrics.Describe(ttft).Median), fmt.Sprintf("%.2f", time.Since(start).Seconds()),
	}, nil
}

// clock runs a request and returns the time of each token since its start.
func clock(ctx context.Context, eng *llm.LLM, ids []int32, output int) ([]time.Duration, error) {
	start := time.Now()
	s, err := eng.Stream(ctx, llm.Request{TokenIDs: ids, Params: engine.Greedy(output)})
	if err != nil {
		return nil, err
	}
	var times []time.Duration
	_, err = read(ctx, s, func(int, llm.Event) { times = append(times, time.Since(start)) })
	return times, err
}

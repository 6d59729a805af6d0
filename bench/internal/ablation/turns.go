package ablation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/go/llm"
)

// conversation is a load of users who each hold a conversation: every turn's
// prompt is all that was said before, and something new.
type conversation struct {
	model                       string
	users, turns, input, output int
	seed                        uint64
}

func turnsCommand() *cobra.Command {
	c := conversation{}
	return program.Spec{
		Name: "turns", Short: "Conversations of several turns with the radix and the naive prefix cache",
		Long:     "Each user sends a turn, waits for the answer, and sends the next turn behind all that was said before.\nWith the radix cache only the new part is computed; the naive cache computes everything again.",
		Examples: "  go run ./bench/ablation turns\n  go run ./bench/ablation turns --users 4 --turns 8 --input 128",
		Define:   c.define, Check: c.check, Run: c.compare,
	}.Command()
}

func (c *conversation) define(f *pflag.FlagSet) {
	f.StringVar(&c.model, "model", "smollm2-135m", "the model: a name, a directory or a .gguf file")
	f.IntVar(&c.users, "users", 20, "users, all at once")
	f.IntVar(&c.turns, "turns", 5, "turns of each")
	f.IntVar(&c.input, "input", 64, "new tokens of a turn")
	f.IntVar(&c.output, "output", 16, "tokens of an answer")
	f.Uint64Var(&c.seed, "seed", 42, "of the random tokens")
}

func (c *conversation) check(*pflag.FlagSet) error {
	if c.users < 1 || c.turns < 2 || c.input < 1 || c.output < 1 {
		return errors.New("--users, --input and --output must be at least 1, --turns at least 2")
	}
	return nil
}

// outcome is what one cache gave.
type outcome struct {
	cache        string
	first, later []float64 // TTFT of turn 1 and of the others, ms
	stats        llm.Stats
}

func (c *conversation) compare(ctx context.Context, stdout, stderr io.Writer) error {
	var all []outcome
	for _, cache := range []string{"naive", "radix"} {
		fmt.Fprintf(stderr, "%d users, %d turns, cache %s ...\n", c.users, c.turns, cache)
		o, err := c.run(ctx, cache)
		if err != nil {
			return err
		}
		all = append(all, o)
	}
	return writeTurns(stdout, all)
}

// run holds all conversations with one cache.
func (c *conversation) run(ctx context.Context, cache string) (outcome, error) {
	eng, err := engine.Open(ctx, llm.Config{
		Model: c.model, CacheType: cache, MaxRunningReq: c.users,
		MaxSeqLenOverride: c.turns*(c.input+c.output) + 1, NumPageOverride: c.users * (c.turns*(c.input+c.output) + 1),
	})
	if err != nil {
		return outcome{}, err
	}
	defer eng.Close()
	o := outcome{cache: cache}
	ttft := make([][]float64, c.users)
	errs := make([]error, c.users)
	var wg sync.WaitGroup
	for user := range c.users {
		wg.Go(func() { ttft[user], errs[user] = c.user(ctx, eng, user) })
	}
	wg.Wait()
	for _, t := range ttft {
		if len(t) == c.turns {
			o.first = append(o.first, t[0])
			o.later = append(o.later, t[1:]...)
		}
	}
	o.stats = eng.Stats()
	return o, errors.Join(errs...)
}

// user holds one conversation and returns the TTFT of each turn in ms.
func (c *conversation) user(ctx context.Context, eng *llm.LLM, user int) ([]float64, error) {
	rng := rand.New(rand.NewPCG(c.seed, uint64(user)))
	var said []int32
	var ttft []float64
	for range c.turns {
		said = append(said, engine.RandomIDs(rng, eng, c.input)...)
		start := time.Now()
		s, err := eng.Stream(ctx, llm.Request{TokenIDs: said, Params: engine.Greedy(c.output)})
		if err != nil {
			return nil, err
		}
		answer, err := read(ctx, s, func(n int, _ llm.Event) {
			if n == 0 {
				ttft = append(ttft, float64(time.Since(start))/1e6)
			}
		})
		if err != nil {
			return nil, err
		}
		said = append(said, answer...)
	}
	return ttft, nil
}

// read returns a stream's tokens; token is called as the n-th comes, from 0 on.
func read(ctx context.Context, s *llm.Stream, token func(n int, ev llm.Event)) ([]int32, error) {
	defer s.Close()
	var ids []int32
	for {
		ev, err := s.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return ids, nil
		case err != nil:
			return nil, err
		case ev.Err != nil:
			return nil, ev.Err
		}
		if ev.HasToken {
			token(len(ids), ev)
			ids = append(ids, ev.Token)
		}
	}
}

func writeTurns(w io.Writer, all []outcome) error {
	t := newTable(w)
	t.Header("cache", "TTFT turn 1 (ms)", "TTFT later turns (ms)", "P99 (ms)", "prompt tokens computed", "from cache")
	for _, o := range all {
		first, later := metrics.Describe(o.first), metrics.Describe(o.later)
		row := []string{
			o.cache, fmt.Sprintf("%.1f", first.Median), fmt.Sprintf("%.1f", later.Median), fmt.Sprintf("%.1f", later.P99),
			fmt.Sprint(o.stats.PromptTokens), fmt.Sprint(o.stats.CachedTokens),
		}
		if err := t.Append(row); err != nil {
			return err
		}
	}
	if err := t.Render(); err != nil {
		return err
	}
	naive, radix := metrics.Describe(all[0].later).Median, metrics.Describe(all[1].later).Median
	_, err := fmt.Fprintf(w, "Medians of %d and %d turns. Later turns with radix: %.2f of naive's TTFT.\n", len(all[0].later), len(all[1].later), radix/naive)
	return err
}

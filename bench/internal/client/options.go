// Package client is the simple load generator: built-in prompts to a chat server,
// at one rate or several.
package client

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/curve"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/report"
)

const examples = `  # 8 requests per second, on average, to a local server
  go run ./bench/client --rate 8

  # 200 requests at once, at most 16 in flight, answers of 256 tokens
  go run ./bench/client --num-requests 200 --max-concurrency 16 --max-tokens 256

  # another server, long prompts, result appended to a file
  go run ./bench/client --url http://10.0.0.5:30000 --rate 2 --input-words 1000 --output-file result.jsonl

  # several rates, a curve and the knee; each rate has prompts of its own
  go run ./bench/client --rates 0.5,1,2,4 --plot curve.svg`

const description = `Sends streaming chat requests to an OpenAI-compatible server and prints latency
and throughput: sglang's result table, then a second one with what that leaves
out (failures, achieved rate, latency with queueing, how tokens were counted).

Requests go out by a Poisson process with the given rate, whether or not earlier
ones were answered, unless --max-concurrency holds them back. Prompts are built
in and depend only on --seed and --input-words. Set OPENAI_API_KEY to send a key.

Exit codes: 0 done, 1 no request succeeded or no server, 2 wrong usage,
130 interrupted (Ctrl-C still prints what there is).`

// options is the command line.
type options struct {
	url            string
	model          string
	numRequests    int
	rate           program.Rate
	rates          program.Rates
	plot           string
	maxTokens      int
	maxConcurrency int
	inputWords     int
	warmup         int
	seed           uint64
	timeout        time.Duration
	idleTimeout    time.Duration
	readyTimeout   time.Duration
	output         report.Output
	quiet          bool
}

// Program is the load generator as a program.
var Program = program.Program{Name: "client", Command: newCommand}

func newCommand() *cobra.Command {
	o := &options{rate: program.Infinite}
	return program.Spec{
		Name: "client", Short: "Measure the latency and throughput of a chat server", Long: description, Examples: examples,
		Define: o.define, Check: o.check, Run: o.run,
	}.Command()
}

func (o *options) define(f *pflag.FlagSet) {
	f.StringVar(&o.url, "url", "http://127.0.0.1:1919", "address of the server; a /v1 or /v1/chat/completions at its end is accepted")
	f.StringVar(&o.model, "model", "", "model to ask for (default: the first the server lists)")
	f.IntVar(&o.numRequests, "num-requests", 64, "requests to send")
	f.Var(&o.rate, "rate", "requests per second; inf sends all at once")
	f.Var(&o.rates, "rates", "several rates, one run each, then a curve and its knee: 0.5,1,2,4")
	f.StringVar(&o.plot, "plot", "", "with --rates: draw the curve into this file, .svg or .png")
	f.IntVar(&o.maxTokens, "max-tokens", 128, "tokens of each answer; the end-of-text token is ignored where the server can")
	f.IntVar(&o.maxConcurrency, "max-concurrency", 0, "most requests in flight; 0 means no limit")
	f.IntVar(&o.inputWords, "input-words", 32, "words of each prompt")
	f.IntVar(&o.warmup, "warmup-requests", 1, "requests before the measurement, with other prompts; 0 for none")
	f.Uint64Var(&o.seed, "seed", 42, "seed of arrival times and prompts")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit of a request; 0 means none")
	f.DurationVar(&o.idleTimeout, "idle-timeout", 5*time.Minute, "time limit between two parts of an answer, and before the first; 0 means none")
	f.DurationVar(&o.readyTimeout, "ready-timeout", time.Minute, "how long to wait for the server; 0 means do not wait")
	o.output.Define(f, "")
	f.BoolVar(&o.quiet, "quiet", false, "no progress bar and no messages but errors")
}

// check names the flag that cannot be used.
func (o *options) check(*pflag.FlagSet) error {
	err := program.CheckBounds([]program.Bound{
		{Flag: "num-requests", Value: o.numRequests, Low: 1, Top: program.MaxRequests},
		{Flag: "max-tokens", Value: o.maxTokens, Low: 1, Top: program.MaxTokens},
		{Flag: "max-concurrency", Value: o.maxConcurrency, Low: 0, Top: program.MaxRequests},
		{Flag: "input-words", Value: o.inputWords, Low: 1, Top: program.MaxWords},
		{Flag: "warmup-requests", Value: o.warmup, Low: 0, Top: program.MaxRequests},
	})
	if err != nil {
		return err
	}
	for flag, d := range map[string]time.Duration{"timeout": o.timeout, "idle-timeout": o.idleTimeout, "ready-timeout": o.readyTimeout} {
		if d < 0 {
			return fmt.Errorf("invalid argument \"%v\" for \"--%s\" flag: want 0 or more", d, flag)
		}
	}
	switch {
	case o.plot != "" && len(o.rates) == 0:
		return fmt.Errorf("--plot needs --rates")
	case o.plot != "":
		if err := curve.CheckPlotName(o.plot); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	if o.output.Details && o.output.File == "" {
		return fmt.Errorf("--output-details needs --output-file")
	}
	base, err := loadgen.ParseBase(o.url)
	if err != nil {
		return fmt.Errorf("invalid argument for \"--url\" flag: %s", strings.TrimPrefix(err.Error(), "loadgen: "))
	}
	o.url = base
	return nil
}

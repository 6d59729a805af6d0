package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
)

const examples = `  # 8 requests per second, on average, to a local server
  go run ./bench/client --rate 8

  # 200 requests at once, at most 16 in flight, answers of 256 tokens
  go run ./bench/client --num-requests 200 --max-concurrency 16 --max-tokens 256

  # another server, long prompts, result appended to a file
  go run ./bench/client --url http://10.0.0.5:30000 --rate 2 --input-words 1000 --output-file result.jsonl

  # several rates; each seed has prompts of its own, so no run finds the last one's in a cache
  for r in 1 2 4 8; do go run ./bench/client --rate $r --seed $r; done`

const description = `Sends streaming chat requests to an OpenAI-compatible server and prints latency
and throughput: sglang's result table, then a second one with what that leaves
out (failures, achieved rate, latency with queueing, how tokens were counted).

Requests go out by a Poisson process with the given rate, whether or not earlier
ones were answered, unless --max-concurrency holds them back. Prompts are built
in and depend only on --seed and --input-words. Set OPENAI_API_KEY to send a key.

Exit codes: 0 done, 1 no request succeeded or no server, 2 wrong usage,
130 interrupted (Ctrl-C still prints what there is).`

// requestRate is a flag in requests per second; "inf" sends all at once.
type requestRate float64

func (r *requestRate) String() string {
	if math.IsInf(float64(*r), 1) {
		return "inf"
	}
	return strconv.FormatFloat(float64(*r), 'g', -1, 64)
}

func (r *requestRate) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) {
		return fmt.Errorf("want a number of requests per second above 0, or inf")
	}
	*r = requestRate(v)
	return nil
}

func (r *requestRate) Type() string { return "rate" }

// options is the command line.
type options struct {
	url            string
	model          string
	numRequests    int
	rate           requestRate
	maxTokens      int
	maxConcurrency int
	inputWords     int
	warmup         int
	seed           uint64
	timeout        time.Duration
	idleTimeout    time.Duration
	readyTimeout   time.Duration
	outputFile     string
	outputDetails  bool
	quiet          bool
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	o := &options{rate: requestRate(math.Inf(1))}
	cmd := &cobra.Command{
		Use:           "client",
		Short:         "Measure the latency and throughput of a chat server",
		Long:          description,
		Example:       examples,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("argument %q is not a flag; all settings are flags", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return usageError{err}
			}
			return benchmark(cmd.Context(), o, stdout, stderr)
		},
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.CompletionOptions.DisableDefaultCmd = true
	o.define(cmd)
	return cmd
}

func (o *options) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.url, "url", "http://127.0.0.1:1919", "address of the server; a /v1 or /v1/chat/completions at its end is accepted")
	f.StringVar(&o.model, "model", "", "model to ask for (default: the first the server lists)")
	f.IntVar(&o.numRequests, "num-requests", 64, "requests to send")
	f.Var(&o.rate, "rate", "requests per second; inf sends all at once")
	f.IntVar(&o.maxTokens, "max-tokens", 128, "tokens of each answer; the end-of-text token is ignored where the server can")
	f.IntVar(&o.maxConcurrency, "max-concurrency", 0, "most requests in flight; 0 means no limit")
	f.IntVar(&o.inputWords, "input-words", 32, "words of each prompt")
	f.IntVar(&o.warmup, "warmup-requests", 1, "requests before the measurement, with other prompts; 0 for none")
	f.Uint64Var(&o.seed, "seed", 42, "seed of arrival times and prompts")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit of a request; 0 means none")
	f.DurationVar(&o.idleTimeout, "idle-timeout", 5*time.Minute, "time limit between two parts of an answer, and before the first; 0 means none")
	f.DurationVar(&o.readyTimeout, "ready-timeout", time.Minute, "how long to wait for the server; 0 means do not wait")
	f.StringVar(&o.outputFile, "output-file", "", "append the result to this file, as a line of JSON")
	f.BoolVar(&o.outputDetails, "output-details", false, "with --output-file: add times, lengths, text and error of each request")
	f.BoolVar(&o.quiet, "quiet", false, "no progress bar and no messages but errors")
}

// Upper limits keep a slip of the keyboard from exhausting memory.
const (
	maxRequests   = 10_000_000
	maxTokenLimit = 1 << 20
	maxWords      = 1_000_000
)

// check names the flag that cannot be used.
func (o *options) check() error {
	for _, n := range []struct {
		flag            string
		value, low, top int
	}{
		{"num-requests", o.numRequests, 1, maxRequests},
		{"max-tokens", o.maxTokens, 1, maxTokenLimit},
		{"max-concurrency", o.maxConcurrency, 0, maxRequests},
		{"input-words", o.inputWords, 1, maxWords},
		{"warmup-requests", o.warmup, 0, maxRequests},
	} {
		if n.value < n.low || n.value > n.top {
			return fmt.Errorf("invalid argument \"%d\" for \"--%s\" flag: want %d to %d", n.value, n.flag, n.low, n.top)
		}
	}
	for flag, d := range map[string]time.Duration{"timeout": o.timeout, "idle-timeout": o.idleTimeout, "ready-timeout": o.readyTimeout} {
		if d < 0 {
			return fmt.Errorf("invalid argument \"%v\" for \"--%s\" flag: want 0 or more", d, flag)
		}
	}
	if o.outputDetails && o.outputFile == "" {
		return fmt.Errorf("--output-details needs --output-file")
	}
	base, err := loadgen.ParseBase(o.url)
	if err != nil {
		return fmt.Errorf("invalid argument for \"--url\" flag: %s", strings.TrimPrefix(err.Error(), "loadgen: "))
	}
	o.url = base
	return nil
}

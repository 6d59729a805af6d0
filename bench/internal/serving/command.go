package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/report"
)

const examples = `  # this project's server: prompts of 256 tokens, 8 requests per second
  go run ./bench/serving --backend minisgl --dataset-name random-ids --random-input 256 --random-output 128 --num-prompts 100 --request-rate 8

  # a server of sglang, as its own client is called
  go run ./bench/serving --backend sglang --port 30000 --model Qwen/Qwen2.5-7B-Instruct --num-prompts 1000 --request-rate 8 \
      --dataset-name sharegpt --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json

  # how many requests meet the limits
  go run ./bench/serving --backend vllm --dataset-name random-ids --request-rate 4 --goodput ttft:500 tpot:50

  # a recorded load at half its speed
  go run ./bench/serving --backend minisgl --dataset-name mooncake --dataset-path trace.jsonl --mooncake-slowdown-factor 2`

const description = `Measures a server as sglang's serving benchmark does: its flags, datasets and
backends, the same lengths, prompts and arrivals for the same --seed, its result
table and its line of JSON. A second table tells what the first one leaves out.

It differs where that client misleads: requests keep to absolute deadlines,
latencies are per token however many come in a chunk, failures are shown,
warm-up has prompts of its own, and JSON is valid.

Set OPENAI_API_KEY (sent as a bearer token) or API_KEY to send a key.

Exit codes: 0 done, 1 no request succeeded, too many failed or no server,
2 wrong usage, 130 interrupted (Ctrl-C still prints what there is).`

// Program is the benchmark as a program.
var Program = program.Program{Name: "serving", Command: newCommand, Lists: Lists}

// command is the benchmark with its settings.
type command struct {
	o   Options
	out report.Output
}

func newCommand() *cobra.Command { return (&command{}).command() }

func (c *command) command() *cobra.Command {
	return program.Spec{
		Name: "serving", Short: "sglang's serving benchmark: its flags, datasets and result table", Long: description, Examples: examples,
		Define: c.define, Check: c.o.Check, Run: c.run,
	}.Command()
}

func (c *command) define(f *pflag.FlagSet) {
	c.o.Define(f)
	c.out.Define(f, " (default: BACKEND_MMDD_N_....jsonl; - for none)")
	f.BoolVar(&c.out.VLLM, "vllm-table", false, "print the table in the layout of vLLM's benchmark")
	f.BoolVar(&c.out.Timeline, "plot-throughput", false, "draw tokens and requests in flight over time in the terminal")
}

func (c *command) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	b, err := Open(ctx, &c.o, stderr)
	if err != nil {
		return err
	}
	defer b.Close()
	c.out.File = c.path()
	if err := c.out.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.out.Close()) }()
	run, err := b.Measure(ctx, c.o.Load)
	if err != nil {
		return err
	}
	if err := c.out.Write(stdout, run.Result, run.Records); err != nil {
		return err
	}
	return b.Verdict(run.Result)
}

// path is the output file, with sglang's default.
func (c *command) path() string {
	switch {
	case c.out.File == "-":
		return ""
	case c.out.File != "":
		return c.out.File
	}
	d := &c.o.Dataset
	day := time.Now().Format("0102")
	if strings.HasPrefix(d.name, "random") {
		return fmt.Sprintf("%s_%s_%d_%d_%d.jsonl", c.o.Backend, day, c.o.Load.NumPrompts, d.random.InputLen, d.random.OutputLen)
	}
	return fmt.Sprintf("%s_%s_%d_%s.jsonl", c.o.Backend, day, c.o.Load.NumPrompts, d.name)
}

package serving

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/record"
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

// sink is where results go.
type sink struct {
	file    string
	details bool
	vllm    bool
	plot    bool
}

func newCommand() *cobra.Command {
	o, out := &Options{}, &sink{}
	cmd := &cobra.Command{
		Use:     "serving",
		Short:   "sglang's serving benchmark: its flags, datasets and result table",
		Long:    description,
		Example: examples,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(cmd.Flags()); err != nil {
				return program.Usage(err)
			}
			return run(cmd, o, out)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	o.Define(f)
	f.StringVar(&out.file, "output-file", "", "append the result to this file as a line of JSON (default: BACKEND_MMDD_N_....jsonl; - for none)")
	f.BoolVar(&out.details, "output-details", false, "add times, lengths, text and error of each request to it")
	f.BoolVar(&out.vllm, "vllm-table", false, "print the table in the layout of vLLM's benchmark")
	f.BoolVar(&out.plot, "plot-throughput", false, "draw tokens and requests in flight over time in the terminal")
	return cmd
}

func run(cmd *cobra.Command, o *Options, out *sink) (err error) {
	b, err := Open(cmd.Context(), o, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer b.Close()
	file, err := program.OpenOutput("output-file", out.path(o))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	run, err := b.Measure(cmd.Context(), o.Load)
	if err != nil {
		return err
	}
	if err := out.write(cmd.OutOrStdout(), file, run); err != nil {
		return err
	}
	return b.Verdict(run.Result)
}

// path is the output file, with sglang's default.
func (out *sink) path(o *Options) string {
	switch {
	case out.file == "-":
		return ""
	case out.file != "":
		return out.file
	}
	d := &o.Dataset
	day := time.Now().Format("0102")
	if strings.HasPrefix(d.name, "random") {
		return fmt.Sprintf("%s_%s_%d_%d_%d.jsonl", o.Backend, day, o.Load.NumPrompts, d.random.InputLen, d.random.OutputLen)
	}
	return fmt.Sprintf("%s_%s_%d_%s.jsonl", o.Backend, day, o.Load.NumPrompts, d.name)
}

func (out *sink) write(stdout, file io.Writer, run *Run) error {
	table := report.WriteTable
	if out.vllm {
		table = report.WriteVLLMTable
	}
	if err := table(stdout, run.Result); err != nil {
		return err
	}
	if err := report.WriteNotes(stdout, run.Result); err != nil {
		return err
	}
	if out.plot {
		if err := report.WriteTimeline(stdout, run.Records); err != nil {
			return err
		}
	}
	var records []record.Record
	if out.details {
		records = run.Records
	}
	return report.WriteJSON(file, run.Result, records)
}

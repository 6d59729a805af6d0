// Package replay sends a recorded load again, at its own times.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/report"
	"github.com/minisgl/minisgl/bench/internal/scrape"
	"github.com/minisgl/minisgl/bench/internal/serving"
)

const examples = `  # your own traffic: one JSON object a line with timestamp (seconds), messages or prompt, max_tokens
  go run ./bench/replay --traces traces.jsonl --target http://127.0.0.1:1919

  # a public trace, at twice its speed, its second minute
  go run ./bench/replay --traces conversation_trace.jsonl --format mooncake --target http://127.0.0.1:1919 --scale 0.5 --from 1m --to 2m`

const description = `Sends the requests of a trace at their recorded times, whether or not earlier
ones were answered, and prints serving's tables and how the server's /metrics
changed.

Formats: requests (messages or prompt of each request; with chat_id and
parent_chat_id, a turn waits for the answer before it and has it in its
messages), mooncake, qwen (bailian) and burstgpt, whose prompts are made up with
the recorded lengths and shared prefixes. Takes the flags of serving too.`

// Program is the replay as a program.
var Program = program.Program{Name: "replay", Command: newCommand, Lists: serving.Lists}

type config struct {
	o              *serving.Options
	traces, target string
	format         string
	scale          float64
	from, to       time.Duration
	limit          int
	out            report.Output
}

func newCommand() *cobra.Command {
	c := &config{o: &serving.Options{}}
	return program.Spec{
		Name: "replay", Short: "Send a recorded load again, at its own times", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.StringVar(&c.traces, "traces", "", "file with the trace")
	f.StringVar(&c.target, "target", "http://127.0.0.1:1919", "address of the server")
	f.StringVar(&c.format, "format", "requests", "requests, mooncake, qwen (bailian) or burstgpt")
	f.Float64Var(&c.scale, "scale", 1, "stretch the time between requests: 0.5 is twice as fast")
	f.DurationVar(&c.from, "from", 0, "begin so long after the trace's first request")
	f.DurationVar(&c.to, "to", 0, "end before this time of the trace; 0 is its end")
	f.IntVar(&c.limit, "limit", program.MaxRequests, "most requests to send")
	c.out.Define(f, "")
	c.o.Define(f)
	f.Lookup("backend").DefValue = "minisgl"
}

func (c *config) check(f *pflag.FlagSet) error {
	kind, err := dataset.ParseTraceKind(c.format)
	if err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	switch {
	case c.traces == "":
		return errors.New("--traces FILE names the trace to send")
	case !(c.scale > 0) || math.IsInf(c.scale, 0):
		return fmt.Errorf("--scale is %v: want more than 0", c.scale)
	case c.from < 0 || c.to < 0 || c.to > 0 && c.to <= c.from:
		return fmt.Errorf("--from %v --to %v is no window", c.from, c.to)
	case c.limit < 1 || c.limit > program.MaxRequests:
		return fmt.Errorf("--limit is %d: want 1 to %d", c.limit, program.MaxRequests)
	}
	if !f.Changed("backend") {
		c.o.Backend = "minisgl"
	}
	c.o.BaseURL, c.o.Load.NumPrompts = c.target, c.limit
	c.o.Replay(kind, c.traces, c.scale, c.from, c.to)
	return c.o.Check(f)
}

func (c *config) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if err := c.out.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.out.Close()) }()
	b, err := serving.Open(ctx, c.o, stderr)
	if err != nil {
		return err
	}
	defer b.Close()
	before := b.Metrics(ctx)
	run, err := b.Measure(ctx, c.o.Load)
	if err != nil {
		return err
	}
	after := b.Metrics(context.WithoutCancel(ctx))
	if err := c.out.Write(stdout, run.Result, run.Records); err != nil {
		return err
	}
	if err := writeChanges(stdout, before, after); err != nil {
		return err
	}
	return b.Verdict(run.Result)
}

// maxChanges bounds the table of metrics.
const maxChanges = 60

// writeChanges shows how the server's metrics changed over the replay.
func writeChanges(w io.Writer, before, after scrape.Sample) error {
	if before == nil || after == nil {
		_, err := fmt.Fprintln(w, "The server has no /metrics to compare.")
		return err
	}
	t := tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
	t.Header("server metric", "before", "after", "change")
	rows := 0
	for _, change := range scrape.Diff(before, after) {
		if process(change.Name) || rows == maxChanges {
			continue
		}
		rows++
		row := []string{change.Name, fmt.Sprintf("%.6g", change.Before), fmt.Sprintf("%.6g", change.After), fmt.Sprintf("%+.6g", change.After-change.Before)}
		if err := t.Append(row); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	if rows == 0 {
		_, err := fmt.Fprintln(w, "None of the server's metrics changed.")
		return err
	}
	return t.Render()
}

// process tells whether a metric is about the process rather than its work.
func process(name string) bool {
	for _, prefix := range []string{"process_", "python_", "go_", "promhttp_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasSuffix(name, "_created")
}

package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/serving"
	"github.com/minisgl/minisgl/bench/internal/stats"
)

const examples = `  # two servers, five runs of each in turn
  go run ./bench/compare --a-url http://127.0.0.1:1919 --b-url http://127.0.0.1:1920 --backend minisgl --dataset-name random-ids --num-prompts 100 --request-rate 4

  # two result files of serving, one run a line
  go run ./bench/compare --a before.jsonl --b after.jsonl --markdown report.md`

const description = `Decides whether B is worse than A: two running servers, measured in turn with the
same load, or two result files of serving (sglang's own client writes them too).

For each metric: the medians, the change, its 95% bootstrap interval and the
p-value of a Mann-Whitney test, corrected for the number of metrics. A metric is
worse or better if p is below --alpha and the change at least --threshold.
Takes the flags of serving for the load.

Exit codes: 0 no regression, 3 B is worse, 1 an error, 2 wrong usage,
130 interrupted.`

// Program is the comparison as a program.
var Program = program.Program{Name: "compare", Command: newCommand, Lists: serving.Lists}

type config struct {
	o                  *serving.Options
	aURL, bURL         string
	aFile, bFile       string
	aName, bName       string
	aBackend, bBackend string
	repeats            int
	threshold, alpha   float64
	markdown           string
	hardware           string
	flags              *pflag.FlagSet // that o was defined on
}

func newCommand() *cobra.Command { return (&config{o: &serving.Options{}}).command() }

func (c *config) command() *cobra.Command {
	return program.Spec{
		Name: "compare", Short: "Whether B is worse than A: two servers in turn, or two result files", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.StringVar(&c.aURL, "a-url", "", "address of server A")
	f.StringVar(&c.bURL, "b-url", "", "address of server B")
	f.StringVar(&c.aBackend, "a-backend", "", "kind of server A (default: --backend)")
	f.StringVar(&c.bBackend, "b-backend", "", "kind of server B (default: --backend)")
	f.StringVar(&c.aFile, "a", "", "or: result file of A")
	f.StringVar(&c.bFile, "b", "", "and of B")
	f.StringVar(&c.aName, "a-name", "A", "what to call A in the report")
	f.StringVar(&c.bName, "b-name", "B", "what to call B in the report")
	f.IntVar(&c.repeats, "repeats", minRuns, "runs of each server")
	f.Float64Var(&c.threshold, "threshold", 0.03, "smallest change that matters, as a share")
	f.Float64Var(&c.alpha, "alpha", 0.05, "chance of a false alarm over all metrics")
	f.StringVar(&c.markdown, "markdown", "", "write the report into this file")
	f.StringVar(&c.hardware, "hardware", "", "what the servers run on, for the report")
	c.o.Define(f)
}

func (c *config) check(f *pflag.FlagSet) error {
	c.flags = f
	files, urls := c.aFile != "" && c.bFile != "", c.aURL != "" && c.bURL != ""
	switch {
	case files == urls || (c.aFile != "") != (c.bFile != "") || (c.aURL != "") != (c.bURL != ""):
		return errors.New("give either --a and --b, two result files, or --a-url and --b-url, two servers")
	case c.repeats < 1 || c.repeats > 1000:
		return fmt.Errorf("--repeats is %d: want 1 to 1000", c.repeats)
	case !(c.threshold >= 0 && c.threshold < 1):
		return fmt.Errorf("--threshold is %v: want 0 to 1", c.threshold)
	case !(c.alpha > 0 && c.alpha < 1):
		return fmt.Errorf("--alpha is %v: want more than 0 and less than 1", c.alpha)
	}
	return nil
}

func (c *config) run(ctx context.Context, stdout, stderr io.Writer) error {
	a, b, err := c.runs(ctx, stderr)
	if err != nil {
		return err
	}
	rows := judge(a, b, c.threshold, c.alpha)
	if err := c.print(stdout, rows, a, b); err != nil {
		return err
	}
	if c.markdown != "" {
		if err := os.WriteFile(c.markdown, []byte(c.report(rows, a, b)), 0o644); err != nil {
			return fmt.Errorf("compare: %w", err)
		}
	}
	if len(rows) == 0 {
		return errors.New("one side has no figures: no request succeeded")
	}
	if regression(rows) {
		return fmt.Errorf("%w: %s is worse than %s", program.ErrRegression, c.bName, c.aName)
	}
	return nil
}

func (c *config) runs(ctx context.Context, stderr io.Writer) (a, b []*run, err error) {
	if c.aFile == "" {
		return c.measure(ctx, stderr)
	}
	if a, err = readRuns(c.aFile); err != nil {
		return nil, nil, program.Usage(err)
	}
	if b, err = readRuns(c.bFile); err != nil {
		return nil, nil, program.Usage(err)
	}
	return a, b, nil
}

// measure runs both servers in turn: A B, B A, A B, so that neither always comes
// first. Both have the same load in a turn, and each turn one of its own.
func (c *config) measure(ctx context.Context, stderr io.Writer) (a, b []*run, err error) {
	var sides [2]*serving.Bench
	options := [2]*serving.Options{}
	for i, side := range []struct{ url, backend string }{{c.aURL, c.aBackend}, {c.bURL, c.bBackend}} {
		if options[i], err = c.o.For(c.flags, side.url, side.backend); err != nil {
			return nil, nil, program.Usage(err)
		}
	}
	for i := range sides {
		if sides[i], err = serving.Open(ctx, options[i], stderr); err != nil {
			return nil, nil, err
		}
		defer sides[i].Close()
	}
	var runs [2][]*run
	for turn := range c.repeats {
		for k := range 2 {
			i := (turn + k) % 2
			fmt.Fprintf(stderr, "Turn %d of %d, server %s\n", turn+1, c.repeats, []string{c.aName, c.bName}[i])
			load := options[i].Load
			load.Seed += uint32(turn)
			measured, err := sides[i].Measure(ctx, load)
			if err != nil {
				return nil, nil, err
			}
			if measured.Result.Interrupted {
				return nil, nil, program.ErrInterrupted
			}
			r, err := toRun(measured.Result)
			if err != nil {
				return nil, nil, err
			}
			runs[i] = append(runs[i], r)
		}
	}
	return runs[0], runs[1], nil
}

var header = []string{"metric", "A", "B", "change", "95% interval", "p", "p corrected", "verdict"}

func (r *row) cells() []string {
	percent := func(v float64) string { return fmt.Sprintf("%+.1f%%", 100*v) }
	return []string{
		r.name + " (" + r.unit + ")", fmt.Sprintf("%.2f", stats.Median(r.a)), fmt.Sprintf("%.2f", stats.Median(r.b)), percent(r.change),
		percent(r.low) + " to " + percent(r.high), fmt.Sprintf("%.3f", r.p), fmt.Sprintf("%.3f", r.adjusted), r.words(),
	}
}

func (c *config) print(w io.Writer, rows []row, a, b []*run) error {
	t := tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
	t.Header("metric", c.aName, c.bName, header[3], header[4], header[5], header[6], header[7])
	for i := range rows {
		if err := t.Append(rows[i].cells()); err != nil {
			return fmt.Errorf("compare: %w", err)
		}
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	text := fmt.Sprintf("Medians of %d and %d runs.\n%s\n", len(a), len(b), c.named(verdict(rows, min(len(a), len(b)))))
	for _, warning := range warnings(a, b) {
		text += "Note: " + warning + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

func (c *config) named(text string) string {
	return strings.Replace(text, "B against A", c.bName+" against "+c.aName, 1)
}

// report is the comparison for a person who was not there.
func (c *config) report(rows []row, a, b []*run) string {
	var out strings.Builder
	fmt.Fprintf(&out, "## %s vs %s benchmark — %s\n\n### Hardware and configuration\n", c.aName, c.bName, time.Now().Format(time.DateOnly))
	hardware := c.hardware
	if hardware == "" {
		hardware = "not stated"
	}
	fmt.Fprintf(&out, "- Servers run on: %s\n- Client: %s/%s, %d CPUs\n", hardware, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for _, side := range []struct {
		name string
		runs []*run
	}{{c.aName, a}, {c.bName, b}} {
		r := side.runs[0]
		limit := "none"
		if r.Limit != nil {
			limit = fmt.Sprint(*r.Limit)
		}
		fmt.Fprintf(&out, "- %s: backend %s, model %s, dataset %s, request rate %v, concurrency limit %s, %d requests a run\n", side.name, r.Backend, r.Model, r.Dataset, r.Rate, limit, max(r.Sent, r.Completed))
	}
	fmt.Fprintf(&out, "\n### Key figures (median of %d and %d runs)\n| metric | %s | %s | %s |\n|---|---:|---:|---:|---|---:|---:|---|\n", len(a), len(b), c.aName, c.bName, strings.Join(header[3:], " | "))
	for i := range rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(rows[i].cells(), " | "))
	}
	fmt.Fprintf(&out, "\n### Reading\n- %s\n", c.named(verdict(rows, min(len(a), len(b)))))
	fmt.Fprintf(&out, "- A metric counts as different if p, corrected for %d metrics, is below %g and its median changed by %g%% or more.\n", len(rows), c.alpha, 100*c.threshold)
	out.WriteString("\n### Risks\n")
	risks := warnings(a, b)
	if len(risks) == 0 {
		risks = []string{"None of the known traps applies."}
	}
	for _, risk := range risks {
		fmt.Fprintf(&out, "- %s\n", risk)
	}
	return out.String()
}

package ablation

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/stats"
)

// figures are the columns of the table.
var figures = []struct {
	name string
	of   func(*metrics.Summary) float64
}{
	{"output (tok/s)", func(s *metrics.Summary) float64 { return s.OutputThroughput }},
	{"TTFT median (ms)", func(s *metrics.Summary) float64 { return s.TTFT.Median }},
	{"TTFT P99 (ms)", func(s *metrics.Summary) float64 { return s.TTFT.P99 }},
	{"TPOT median (ms)", func(s *metrics.Summary) float64 { return s.TPOT.Median }},
	{"ITL median (ms)", func(s *metrics.Summary) float64 { return s.ITL.Median }},
}

// write prints the table of what was measured, and what it means.
func (c *config) write(w io.Writer) error {
	t := newTable(w)
	header := []string{"", "rounds"}
	for _, f := range figures {
		header = append(header, f.name)
	}
	t.Header(header)
	base := c.list[0]
	for _, conf := range c.list {
		if len(conf.runs) == 0 { // the program was interrupted
			continue
		}
		if err := t.Append(conf.cells(base)); err != nil {
			return err
		}
		if conf == base && len(base.runs) > 1 {
			if err := t.Append(base.spread()); err != nil {
				return err
			}
		}
	}
	if err := t.Render(); err != nil {
		return err
	}
	_, err := io.WriteString(w, c.legend())
	return err
}

// legend says what was measured, how, and what was not.
func (c *config) legend() string {
	var out strings.Builder
	fmt.Fprintf(&out, "Baseline: %s. Each other row changes one of these.\n", describe(c.base))
	fmt.Fprintf(&out, "%d requests at once, %d tokens in (%d of them shared) and %d out. Medians of the rounds, in turn, and the change\nagainst the baseline.", c.requests, c.input, c.shared, c.output)
	if len(c.list[0].runs) > 1 {
		out.WriteString(" Spread: how far the baseline's rounds lie apart; a smaller change says nothing.")
	}
	out.WriteString(" The tokens are equal.\n")
	for _, m := range c.missing {
		fmt.Fprintf(&out, "Not measured: %s.\n", m)
	}
	return out.String()
}

// column is a figure of all of a configuration's rounds.
func (c *configuration) column(of func(*metrics.Summary) float64) []float64 {
	out := make([]float64, len(c.runs))
	for i := range c.runs {
		out[i] = of(&c.runs[i])
	}
	return out
}

func (c *configuration) cells(base *configuration) []string {
	row := []string{c.name, fmt.Sprint(len(c.runs))}
	for _, f := range figures {
		values := c.column(f.of)
		cell := fmt.Sprintf("%.1f", stats.Median(values))
		if c != base {
			cell += fmt.Sprintf(" %8s", percent(stats.Change(base.column(f.of), values), "%+.1f%%"))
		}
		row = append(row, cell)
	}
	return row
}

// spread is the baseline's largest value less its smallest, as a share of the median.
func (c *configuration) spread() []string {
	row := []string{"its spread", ""}
	for _, f := range figures {
		values := c.column(f.of)
		row = append(row, percent((slices.Max(values)-slices.Min(values))/stats.Median(values), "%.1f%%"))
	}
	return row
}

func percent(share float64, format string) string {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return "n/a"
	}
	return fmt.Sprintf(format, 100*share)
}

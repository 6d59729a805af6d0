package sweep

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/curve"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/scrape"
)

// report prints the curve and writes the files.
func (c *config) report(stdout io.Writer, outcomes []outcome) error {
	pts := points(outcomes)
	if err := curve.WriteText(stdout, c.axis(), pts); err != nil {
		return err
	}
	if text := queueing(outcomes); text != "" {
		fmt.Fprintln(stdout, text)
	}
	svg, err := curve.SVG(c.axis(), pts)
	if err != nil {
		return err
	}
	page, err := c.html(pts, outcomes, svg)
	if err != nil {
		return err
	}
	table, err := csvOf(outcomes)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"sweep.csv": table, "sweep.md": []byte(c.markdown(pts, outcomes)), "sweep.svg": svg, "sweep.html": page} {
		if err := os.WriteFile(filepath.Join(c.dir, name), data, 0o644); err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	_, err = fmt.Fprintf(stdout, "Report: %s\n", filepath.Join(c.dir, "sweep.html"))
	return err
}

var csvHeader = strings.Fields(`load repeat seed sent failed duration_s request_throughput output_throughput concurrency
	mean_ttft_ms median_ttft_ms p99_ttft_ms mean_tpot_ms median_tpot_ms p99_tpot_ms median_itl_ms p99_itl_ms median_e2e_ms p99_e2e_ms
	p99_queued_e2e_ms sent_rate max_client_lag_ms server_max_queue server_mean_queue server_max_running server_cache_hit_rate`)

// csvOf has a row for each run. A figure without a sample is empty.
func csvOf(outcomes []outcome) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	if err := w.Write(csvHeader); err != nil {
		return nil, err
	}
	for i := range outcomes {
		o := &outcomes[i]
		s := &o.Summary
		row := []string{number(o.Load), strconv.Itoa(o.Repeat + 1), strconv.Itoa(int(o.Seed)), strconv.Itoa(s.Sent), strconv.Itoa(s.Failed)}
		row = append(row, number(s.Duration.Seconds()), number(s.RequestThroughput), number(s.OutputThroughput), number(s.Concurrency))
		for _, pair := range []struct {
			stats metrics.Stats
			v     []float64
		}{
			{s.TTFT, []float64{s.TTFT.Mean, s.TTFT.Median, s.TTFT.P99}}, {s.TPOT, []float64{s.TPOT.Mean, s.TPOT.Median, s.TPOT.P99}},
			{s.ITL, []float64{s.ITL.Median, s.ITL.P99}}, {s.E2E, []float64{s.E2E.Median, s.E2E.P99}}, {s.QueuedE2E, []float64{s.QueuedE2E.P99}},
		} {
			for _, v := range pair.v {
				row = append(row, sample(v, pair.stats))
			}
		}
		row = append(row, number(s.SentRate), number(float64(s.MaxLag)/1e6))
		server := []string{"", "", "", ""}
		if o.Server.Samples > 0 {
			server = []string{number(o.Server.MaxQueue), number(o.Server.MeanQueue), number(o.Server.MaxRunning), ""}
		}
		if rate, ok := o.Server.HitRate(); ok {
			server[3] = number(rate)
		}
		if err := w.Write(append(row, server...)); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return out.Bytes(), w.Error()
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }

func sample(v float64, s metrics.Stats) string {
	if s.Count == 0 {
		return ""
	}
	return number(v)
}

var columns = []string{"sent / failed", "req/s", "output tok/s", "TTFT median (ms)", "TTFT P99", "TPOT median", "TPOT P99", "E2E P99", "server's queue, max", "its cache hits"}

// serverCells are the longest queue of a load's runs and the cache hits of all of them.
func serverCells(load float64, outcomes []outcome) (queue, hits string) {
	queue, hits = "n/a", "n/a"
	longest, all := -1.0, scrape.Load{}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Load != load {
			continue
		}
		if o.Server.Samples > 0 {
			longest = max(longest, o.Server.MaxQueue)
			queue = number(longest)
		}
		all.Prompt += o.Server.Prompt
		all.Cached += o.Server.Cached
	}
	if rate, ok := all.HitRate(); ok {
		hits = fmt.Sprintf("%.1f%%", 100*rate)
	}
	return queue, hits
}

// queueing says from which load on requests wait at the server, by its own metric:
// one or more on average, of a load's longest-queued run. It is what the knee can be
// checked against, which is seen from outside. "" means that the server does not tell.
func queueing(outcomes []outcome) string {
	mean := map[float64]float64{}
	for i := range outcomes {
		if o := &outcomes[i]; o.Server.Samples > 0 {
			mean[o.Load] = max(mean[o.Load], o.Server.MeanQueue)
		}
	}
	if len(mean) == 0 {
		return ""
	}
	loads := slices.Sorted(maps.Keys(mean))
	for i, load := range loads {
		if mean[load] < 1 {
			continue
		}
		before := ""
		if i > 0 {
			before = fmt.Sprintf("; %.1f at %g", mean[loads[i-1]], loads[i-1])
		}
		return fmt.Sprintf("By the server's own metric, requests wait in its queue from %g on: %.1f on average%s.", load, mean[load], before)
	}
	return fmt.Sprintf("By the server's own metric, no requests wait in its queue up to %g: %.1f on average.", loads[len(loads)-1], mean[loads[len(loads)-1]])
}

// cells are the columns of a load.
func cells(p *curve.Point, outcomes []outcome) []string {
	queue, hits := serverCells(p.Load, outcomes)
	ms := func(v float64, s metrics.Stats) string {
		if s.Count == 0 {
			return "n/a"
		}
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return []string{
		fmt.Sprintf("%d / %d", p.Sent, p.Failed), fmt.Sprintf("%.2f", p.RequestThroughput), fmt.Sprintf("%.1f", p.OutputThroughput),
		ms(p.TTFT.Median, p.TTFT), ms(p.TTFT.P99, p.TTFT), ms(p.TPOT.Median, p.TPOT), ms(p.TPOT.P99, p.TPOT), ms(p.E2E.P99, p.E2E), queue, hits,
	}
}

func (c *config) markdown(pts []curve.Point, outcomes []outcome) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Sweep of %s\n\n%s %s\n\n", c.title(), curve.FindKnee(c.axis(), pts), queueing(outcomes))
	fmt.Fprintf(&out, "| %s | %s |\n|%s\n", c.axis(), strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)+1))
	for i := range pts {
		fmt.Fprintf(&out, "| %g | %s |\n", pts[i].Load, strings.Join(cells(&pts[i], outcomes), " | "))
	}
	fmt.Fprintf(&out, "\nMedians of %d run(s) for each load.\n\n![curves](sweep.svg)\n", c.repeats)
	return out.String()
}

func (c *config) title() string { return c.o.Backend + " at " + c.o.Address() }

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Sweep of {{.Title}}</title>
<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%}th,td{padding:.3em .6em;text-align:right;border-bottom:1px solid #ddd}
th{border-bottom:2px solid #888}.knee{padding:.8em 1em;background:#eef4fb;border-left:4px solid #4a7ebb}svg{max-width:100%;height:auto}</style></head><body>
<h1>Sweep of {{.Title}}</h1>
<p class="knee">{{.Knee}} {{.Queueing}}</p>
<table><tr><th>{{.Axis}}</th>{{range .Columns}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
<p>Medians of {{.Repeats}} run(s) for each load. Dataset {{.Dataset}}.</p>
{{.Plot}}
</body></html>
`))

func (c *config) html(pts []curve.Point, outcomes []outcome, svg []byte) ([]byte, error) {
	rows := make([][]string, len(pts))
	for i := range pts {
		rows[i] = append([]string{number(pts[i].Load)}, cells(&pts[i], outcomes)...)
	}
	_, body, found := bytes.Cut(svg, []byte("<svg"))
	if !found {
		return nil, fmt.Errorf("sweep: the plot is no SVG")
	}
	var out bytes.Buffer
	err := page.Execute(&out, map[string]any{
		"Title": c.title(), "Knee": curve.FindKnee(c.axis(), pts).String(), "Queueing": queueing(outcomes), "Axis": c.axis(), "Columns": columns, "Rows": rows,
		"Repeats": c.repeats, "Dataset": c.o.DatasetName(), "Plot": template.HTML("<svg" + string(body)), //nolint:gosec // made here, from numbers
	})
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	return out.Bytes(), nil
}

// Package report prints the result of a benchmark: sglang's result table, the
// notes on what that table leaves out, and a line of JSON.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/metrics"
)

const (
	tableWidth = 50
	noValue    = "n/a"
)

// Result is one run: what was asked, and the figures.
type Result struct {
	Backend        string
	Model          string
	Rate           float64 // requests per second offered; +Inf for all at once
	MaxConcurrency int     // 0 if there was no limit
	NumRequests    int     // planned
	MaxTokens      int
	InputWords     int
	Seed           uint64
	Interrupted    bool

	Dataset      string // where the prompts come from; "" means built in
	Trace        bool   // sent at recorded times: Rate means nothing
	Tag          string
	Lens         *Lens
	ServerInfo   json.RawMessage // as the server gave it, or nil
	AcceptLength float64         // tokens per step of speculative decoding; 0 if there is none
	Goodput      *metrics.Goodput
	CacheReport  bool        // show the cache hits
	Retokenizer  string      // what counted the tokens of the answers' text; "" if nothing did
	Notes        [][2]string // further rows for WriteNotes

	metrics.Summary
}

// Lens are the lengths that a dataset was asked for, in tokens.
type Lens struct {
	ShareGPTOutput            int // 0: as the dataset says
	RandomInput, RandomOutput int
	RangeRatio                float64
}

func (r *Result) rateText() string {
	if r.Trace {
		return "trace"
	}
	return pythonFloat(r.Rate)
}

// cached returns the prompt tokens that cache hits are a share of, and the hit rate.
func (r *Result) cached() (prompt int, rate float64) {
	if r.ServerInput == 0 {
		return 0, 0
	}
	return r.ServerInput, float64(r.CachedTokens) / float64(r.ServerInput)
}

// retokenized is the count that sglang's table shows twice when nobody counts again.
func (r *Result) retokenized() int {
	if r.Retokenized >= 0 {
		return r.Retokenized
	}
	return r.OutputTokens
}

// table builds rows in the layout of sglang's serving benchmark.
type table struct{ strings.Builder }

func (t *table) title(text string, fill byte) {
	left := (tableWidth - len(text)) / 2
	right := tableWidth - len(text) - left
	t.WriteString(strings.Repeat(string(fill), left) + text + strings.Repeat(string(fill), right) + "\n")
}

func (t *table) text(label, value string) { fmt.Fprintf(t, "%-40s %-10s\n", label, value) }

func (t *table) count(label string, n int) { t.text(label, strconv.Itoa(n)) }

func (t *table) number(label string, v float64, known bool) {
	if !known || math.IsNaN(v) || math.IsInf(v, 0) {
		t.text(label, noValue)
		return
	}
	t.text(label, strconv.FormatFloat(v, 'f', 2, 64))
}

func (t *table) latency(title, name string, s metrics.Stats) {
	t.title(title, '-')
	for _, row := range []struct {
		label string
		value float64
	}{{"Mean", s.Mean}, {"Median", s.Median}, {"P90", s.P90}, {"P95", s.P95}, {"P99", s.P99}} {
		t.number(row.label+" "+name+" (ms):", row.value, s.Count > 0)
	}
}

// WriteTable writes the result table, laid out byte for byte as sglang's serving
// benchmark (0.5.23) prints it. A figure without a sample is "n/a".
func WriteTable(w io.Writer, r *Result) error {
	t := &table{}
	t.WriteByte('\n')
	t.title(" Serving Benchmark Result ", '=')
	t.text("Backend:", r.Backend)
	t.text("Traffic request rate:", r.rateText())
	limit := "not set"
	if r.MaxConcurrency > 0 {
		limit = strconv.Itoa(r.MaxConcurrency)
	}
	t.text("Max request concurrency:", limit)
	t.count("Successful requests:", r.Completed)
	t.throughput(r)
	t.goodput(r.Goodput)
	t.latency("End-to-End Latency", "E2E Latency", r.E2E)
	t.latency("Time to First Token", "TTFT", r.TTFT)
	t.latency("Time per Output Token (excl. 1st token)", "TPOT", r.TPOT)
	t.latency("Inter-Token Latency", "ITL", r.ITL)
	t.number("Max ITL (ms):", r.ITL.Max, r.ITL.Count > 0)
	t.cache(r)
	t.title("", '=')
	_, err := io.WriteString(w, t.String())
	return err
}

func (t *table) goodput(g *metrics.Goodput) {
	if g == nil {
		return
	}
	t.title("Goodput", '-')
	limits := make([]string, len(g.SLOs))
	for i, slo := range g.SLOs {
		limits[i] = slo.Name + ":" + strconv.FormatFloat(slo.Limit, 'g', 6, 64)
	}
	t.text("SLOs (ms):", strings.Join(limits, " "))
	t.number("Request goodput (req/s):", g.Rate, true)
	t.number("SLO attainment (%):", 100*g.Share(g.Good), true)
	for i, slo := range g.SLOs {
		t.number(strings.ToUpper(slo.Name)+" SLO attainment (%):", 100*g.Share(g.Met[i]), true)
	}
}

func (t *table) cache(r *Result) {
	if !r.CacheReport {
		return
	}
	prompt, rate := r.cached()
	t.title("Cache Hit Details", '-')
	t.count("Total prompt tokens:", prompt)
	t.count("Total cached tokens:", r.CachedTokens)
	fmt.Fprintf(t, "%-40s %.1f%%\n", "Cache hit rate:", 100*rate)
}

func (t *table) throughput(r *Result) {
	timed := r.Duration > 0
	input := noValue
	if r.InputKnown {
		input = strconv.Itoa(r.InputTokens)
	}
	t.number("Benchmark duration (s):", r.Duration.Seconds(), true)
	t.text("Total input tokens:", input)
	t.text("Total input text tokens:", input)
	t.count("Total generated tokens:", r.OutputTokens)
	t.count("Total generated tokens (retokenized):", r.retokenized())
	t.number("Request throughput (req/s):", r.RequestThroughput, timed)
	t.number("Input token throughput (tok/s):", r.InputThroughput, timed && r.InputKnown)
	t.number("Output token throughput (tok/s):", r.OutputThroughput, timed)
	t.number("Peak output token throughput (tok/s):", r.PeakOutput, true)
	t.count("Peak concurrent requests:", r.PeakConcurrency)
	t.number("Total token throughput (tok/s):", r.TotalThroughput, timed && r.InputKnown)
	t.number("Concurrency:", r.Concurrency, timed)
	if r.AcceptLength > 0 {
		t.number("Accept length:", r.AcceptLength, true)
	}
}

// pythonFloat formats v as Python's str does, as the table of sglang shows it.
func pythonFloat(v float64) string {
	if math.IsInf(v, 1) {
		return "inf"
	}
	if v != 0 && (math.Abs(v) < 1e-4 || math.Abs(v) >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

package report

import (
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/metrics"
)

// WriteVLLMTable writes the result table in the layout of vLLM's serving
// benchmark (0.33), with all of its latency sections and the P99.
func WriteVLLMTable(w io.Writer, r *Result) error {
	t := &table{}
	timed := r.Duration > 0
	t.title(" Serving Benchmark Result ", '=')
	t.count("Successful requests:", r.Completed)
	t.count("Failed requests:", r.Failed)
	if r.MaxConcurrency > 0 {
		t.count("Maximum request concurrency:", r.MaxConcurrency)
	}
	if !r.Trace && !math.IsInf(r.Rate, 1) {
		t.number("Request rate configured (RPS):", r.Rate, true)
	}
	input := noValue
	if r.InputKnown {
		input = strconv.Itoa(r.InputTokens)
	}
	t.number("Benchmark duration (s):", r.Duration.Seconds(), true)
	t.text("Total input tokens:", input)
	t.count("Total generated tokens:", r.OutputTokens)
	t.number("Request throughput (req/s):", r.RequestThroughput, timed)
	if r.Goodput != nil {
		t.number("Request goodput (req/s):", r.Goodput.Rate, true)
	}
	t.number("Output token throughput (tok/s):", r.OutputThroughput, timed)
	t.number("Peak output token throughput (tok/s):", r.PeakOutput, true)
	t.number("Peak concurrent requests:", float64(r.PeakConcurrency), true)
	t.number("Total token throughput (tok/s):", r.TotalThroughput, timed && r.InputKnown)
	for _, section := range []struct {
		title, name string
		stats       metrics.Stats
	}{
		{"Time to First Token", "TTFT", r.TTFT},
		{"Time per Output Token (excl. 1st token)", "TPOT", r.TPOT},
		{"Inter-token Latency", "ITL", r.ITL},
		{"End-to-end Latency", "E2EL", r.E2E},
	} {
		t.title(section.title, '-')
		some := section.stats.Count > 0
		t.number("Mean "+section.name+" (ms):", section.stats.Mean, some)
		t.number("Median "+section.name+" (ms):", section.stats.Median, some)
		t.number("P99 "+section.name+" (ms):", section.stats.P99, some)
	}
	t.WriteString(strings.Repeat("=", tableWidth) + "\n")
	_, err := io.WriteString(w, t.String())
	return err
}

package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/record"
)

const (
	timelineRows = 60
	barWidth     = 25
)

// WriteTimeline draws tokens per second and requests in flight over the time of a run.
func WriteTimeline(w io.Writer, records []record.Record) error {
	parts, width := metrics.Timeline(records, timelineRows)
	tokens, flying := 1, 1
	for _, p := range parts {
		tokens, flying = max(tokens, p.Tokens), max(flying, p.InFlight)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%8s  %-35s  %s\n", "Time (s)", "Output tokens per second", "Requests in flight, most")
	for i, p := range parts {
		fmt.Fprintf(&out, "%8.0f  %-25s %9.1f  %-25s %d\n", float64(i)*width.Seconds(), bar(p.Tokens, tokens), float64(p.Tokens)/width.Seconds(), bar(p.InFlight, flying), p.InFlight)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func bar(n, most int) string { return strings.Repeat("#", (n*barWidth+most-1)/most) }

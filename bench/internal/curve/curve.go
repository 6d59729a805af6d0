// Package curve shows how latency grows with load, and finds where a server
// saturates.
package curve

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/minisgl/minisgl/bench/internal/metrics"
)

// Point is what one load gave.
type Point struct {
	Load float64 // the axis: requests per second, or requests in flight
	metrics.Summary
}

// Axis says what the load of the points is.
type Axis string

// The axes.
const (
	Rates         Axis = "request rate (req/s)"
	Concurrencies Axis = "requests in flight"
)

// Knee is where a server saturates.
type Knee struct {
	Axis   Axis
	Found  bool    // a point beyond the knee was measured
	Last   float64 // highest load below the knee; 0 if even the lowest is beyond it
	Served float64 // requests per second that the server answered there
	First  float64 // lowest load beyond it, if Found
	Why    string  // what happened there
}

// Headroom is the share of the load at the knee that a replica should be given.
const Headroom = 0.8

const (
	jump        = 3.0  // P99 TTFT beyond the knee, over the lowest before it
	floor       = 20.0 // ms; smaller P99 TTFTs count as this, so that noise is no jump
	failedShare = 0.01
	behind      = 0.8 // share of the offered rate that a server must answer
	longEnough  = 3.0 // length of a run, in P99 latencies, from which that can be told
)

// FindKnee looks for the first load, in rising order, at which requests fail, the
// P99 of TTFT is several times that of the lighter loads, or fewer requests are
// answered than sent: there requests wait for others.
func FindKnee(axis Axis, points []Point) Knee {
	k := Knee{Axis: axis}
	lowest := math.Inf(1)
	for i := range points {
		p := &points[i]
		switch {
		case float64(p.Failed) > failedShare*float64(p.Sent):
			k.Why = fmt.Sprintf("%d of %d requests failed", p.Failed, p.Sent)
		case p.TTFT.Count == 0:
			k.Why = "no request had a first token"
		case p.TTFT.P99 > jump*max(lowest, floor):
			k.Why = fmt.Sprintf("P99 TTFT is %.0f ms, %.1f times the lowest", p.TTFT.P99, p.TTFT.P99/lowest)
		case axis == Rates && fallsBehind(p):
			k.Why = fmt.Sprintf("the server answered %.2f of %.2f req/s", p.RequestThroughput, p.SentRate)
		default:
			lowest = min(lowest, p.TTFT.P99)
			k.Last, k.Served = p.Load, p.RequestThroughput
			continue
		}
		k.Found, k.First = true, p.Load
		return k
	}
	return k
}

// fallsBehind tells whether a run that is long enough to tell was answered more
// slowly than it was sent.
func fallsBehind(p *Point) bool {
	if p.SentRate == 0 || p.RequestThroughput >= behind*p.SentRate {
		return false
	}
	return float64(p.Sent)/p.SentRate*1000 >= longEnough*p.E2E.P99
}

// Capacity returns what one replica can be given, in units of the axis: the load
// below the knee, or the rate that was answered there if that is less.
func (k Knee) Capacity() float64 {
	if k.Axis == Rates {
		return min(k.Last, k.Served)
	}
	return k.Last
}

// String is the verdict in words.
func (k Knee) String() string {
	switch {
	case !k.Found:
		return fmt.Sprintf("No knee up to %g: the server can take more than was tried (it answered %.2f req/s).", k.Last, k.Served)
	case k.Last == 0:
		return fmt.Sprintf("The knee is below %g, the lowest load tried (%s).", k.First, k.Why)
	}
	return fmt.Sprintf("The knee is between %g and %g (%s). Capacity of one replica: %.2f; with headroom (x%g): %.2f. At %g it answered %.2f req/s.",
		k.Last, k.First, k.Why, k.Capacity(), Headroom, Headroom*k.Capacity(), k.Last, k.Served)
}

const barWidth = 24

// WriteText writes the points as a table with a bar for the P99 of TTFT, on a
// logarithmic scale, and the knee.
func WriteText(w io.Writer, axis Axis, points []Point) error {
	t := tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
	t.Header(string(axis), "sent/failed", "req/s", "tok/s", "TTFT median", "TTFT P99 (ms)", "TPOT median", "P99 TTFT, log scale")
	low, high := span(points)
	for i := range points {
		p := &points[i]
		row := []string{
			fmt.Sprintf("%g", p.Load), fmt.Sprintf("%d/%d", p.Sent, p.Failed), fmt.Sprintf("%.2f", p.RequestThroughput), fmt.Sprintf("%.1f", p.OutputThroughput),
			known(p.TTFT.Median, p.TTFT), known(p.TTFT.P99, p.TTFT), known(p.TPOT.Median, p.TPOT), bar(p.TTFT, low, high),
		}
		if err := t.Append(row); err != nil {
			return fmt.Errorf("curve: %w", err)
		}
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("curve: %w", err)
	}
	_, err := fmt.Fprintln(w, FindKnee(axis, points))
	return err
}

func known(v float64, s metrics.Stats) string {
	if s.Count == 0 {
		return "n/a"
	}
	return fmt.Sprintf("%.1f", v)
}

func span(points []Point) (low, high float64) {
	low, high = math.Inf(1), 0
	for i := range points {
		if s := points[i].TTFT; s.Count > 0 {
			low, high = min(low, s.P99), max(high, s.P99)
		}
	}
	return low, high
}

// bar is one mark long at the lowest value and barWidth at the highest.
func bar(s metrics.Stats, low, high float64) string {
	if s.Count == 0 {
		return ""
	}
	n := 1
	if high > low && low > 0 {
		n += int(math.Round((barWidth - 1) * math.Log(s.P99/low) / math.Log(high/low)))
	}
	return strings.Repeat("█", n) + strings.Repeat(" ", barWidth-n)
}

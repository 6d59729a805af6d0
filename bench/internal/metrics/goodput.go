package metrics

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/record"
)

// SLO is an upper limit of one latency, in milliseconds.
type SLO struct {
	Name  string // ttft, tpot or e2el
	Limit float64
}

// ParseSLOs reads limits such as "ttft:500" and "tpot:50"; each metric once.
func ParseSLOs(texts []string) ([]SLO, error) {
	var slos []SLO
	for _, text := range texts {
		name, value, _ := strings.Cut(text, ":")
		limit, err := strconv.ParseFloat(value, 64)
		if err != nil || !(limit > 0) || math.IsInf(limit, 0) {
			return nil, fmt.Errorf("%q: want METRIC:MILLISECONDS, such as ttft:500", text)
		}
		switch name {
		case "ttft", "tpot", "e2el":
		default:
			return nil, fmt.Errorf("%q: want ttft, tpot or e2el, got %q", text, name)
		}
		for _, other := range slos {
			if other.Name == name {
				return nil, errors.New(name + " is given twice")
			}
		}
		slos = append(slos, SLO{name, limit})
	}
	return slos, nil
}

// Goodput counts the requests that met all limits.
type Goodput struct {
	SLOs       []SLO
	Good, Sent int
	Met        []int // requests that met each limit
	Rate       float64
}

// Judge holds each request against the limits. A failed request meets none. One
// without a gap between tokens meets any TPOT, as in sglang; one whose first
// token has no known time meets no TTFT.
func Judge(records []record.Record, slos []SLO, duration time.Duration) Goodput {
	g := Goodput{SLOs: slos, Sent: len(records), Met: make([]int, len(slos))}
	for i := range records {
		if !records[i].OK() {
			continue
		}
		met := 0
		for j, slo := range slos {
			if observed(&records[i], slo.Name) <= slo.Limit {
				met++
				g.Met[j]++
			}
		}
		if met == len(slos) {
			g.Good++
		}
	}
	if duration > 0 {
		g.Rate = float64(g.Good) / duration.Seconds()
	}
	return g
}

func observed(r *record.Record, name string) float64 {
	n := len(r.Tokens)
	switch {
	case name == "e2el":
		return millis(r.End() - r.Start)
	case n == 0 || r.WholeAnswer:
		return math.Inf(1)
	case name == "ttft":
		return millis(r.Tokens[0] - r.Start)
	case n == 1:
		return 0
	}
	return millis(r.End()-r.Tokens[0]) / float64(n-1)
}

// Share returns the part of the sent requests that n is, 0 if none was sent.
func (g Goodput) Share(n int) float64 {
	if g.Sent == 0 {
		return 0
	}
	return float64(n) / float64(g.Sent)
}

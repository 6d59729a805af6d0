package sweep

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/minisgl/minisgl/bench/internal/curve"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/serving"
	"github.com/minisgl/minisgl/bench/internal/stats"
)

// answer is what a probe of the search found.
type answer int

const (
	undecided answer = iota
	meets
	misses
)

// probe is one rate of the search, with all requests sent at it.
type probe struct {
	rate       float64
	good, sent int
	point      curve.Point
}

// answer compares the 95% interval of the share of good requests with what is wanted.
func (p *probe) answer(wanted float64) answer {
	low, high := stats.Wilson(p.good, p.sent)
	switch {
	case low >= wanted:
		return meets
	case high < wanted:
		return misses
	}
	return undecided
}

// search finds the highest rate whose share of good requests is at least wanted:
// it doubles a rate until one misses, then halves the gap on a logarithmic scale.
type search struct {
	wanted   float64
	low, top float64 // first rate, and the highest to try
	probes   int     // most rates to try
	measure  func(rate float64) (*probe, error)
	tried    []*probe
}

// fine is the ratio of two rates between which the search does not go on.
const fine = 1.1

func (s *search) run() error {
	met, missed := 0.0, 0.0
	rate := s.low
	for len(s.tried) < s.probes {
		p, err := s.measure(rate)
		if err != nil {
			return err
		}
		s.tried = append(s.tried, p)
		switch p.answer(s.wanted) {
		case meets:
			met = rate
		case misses:
			missed = rate
		default:
			return nil // closer rates would be harder still to tell apart
		}
		switch {
		case missed == 0 && rate >= s.top:
			return nil
		case missed == 0:
			rate = min(2*rate, s.top)
		case met == 0:
			rate = missed / 2
		case missed/met < fine:
			return nil
		default:
			rate = math.Sqrt(met * missed)
		}
	}
	return nil
}

// verdict is the result in words.
func (s *search) verdict() string {
	met, missed := 0.0, math.Inf(1)
	text := ""
	for _, p := range s.tried {
		switch p.answer(s.wanted) {
		case meets:
			met = max(met, p.rate)
		case misses:
			missed = min(missed, p.rate)
		default:
			text = fmt.Sprintf(" At %.4g req/s %d of %d requests met it, which does not decide: send more requests (--num-prompts, --seconds).", p.rate, p.good, p.sent)
		}
	}
	switch {
	case met == 0 && math.IsInf(missed, 1):
		return "Undecided." + text
	case met == 0:
		return fmt.Sprintf("Every rate down to %.4g req/s misses the objective.%s", missed, text)
	case math.IsInf(missed, 1):
		return fmt.Sprintf("The objective is met at %.4g req/s, the highest that is sure.%s", met, text)
	}
	return fmt.Sprintf("The objective is met at %.4g req/s and missed at %.4g. With headroom (x%g): %.4g.%s", met, missed, curve.Headroom, curve.Headroom*met, text)
}

// findRate runs the search against the server.
func (c *config) findRate(ctx context.Context, b *serving.Bench, stdout, stderr io.Writer) error {
	rates := c.loads()
	s := &search{wanted: c.attainment, low: rates[0], top: rates[len(rates)-1], probes: c.probes}
	if len(rates) == 1 {
		s.top = math.Inf(1)
	}
	s.measure = func(rate float64) (*probe, error) {
		if !c.o.Quiet {
			fmt.Fprintf(stderr, "Probe %d: %.4g req/s\n", len(s.tried)+1, rate)
		}
		return c.probe(ctx, b, rate)
	}
	if err := s.run(); err != nil {
		return err
	}
	var pts []curve.Point
	for _, p := range s.tried {
		pts = append(pts, p.point)
	}
	slices.SortFunc(pts, func(a, b curve.Point) int { return cmp.Compare(a.Load, b.Load) })
	if err := curve.WriteText(stdout, curve.Rates, pts); err != nil {
		return err
	}
	for _, p := range s.tried {
		low, high := stats.Wilson(p.good, p.sent)
		fmt.Fprintf(stdout, "%.4g req/s: %d of %d good, 95%% interval %.1f%% to %.1f%%, wanted %.1f%%\n", p.rate, p.good, p.sent, 100*low, 100*high, 100*c.attainment)
	}
	_, err := fmt.Fprintln(stdout, s.verdict())
	return err
}

func (c *config) probe(ctx context.Context, b *serving.Bench, rate float64) (*probe, error) {
	p := &probe{rate: rate}
	var runs []metrics.Summary
	for repeat := range c.repeats {
		run, err := b.Measure(ctx, c.offer(rate, repeat))
		if err != nil {
			return nil, err
		}
		if run.Result.Interrupted {
			return nil, program.ErrInterrupted
		}
		g := metrics.Judge(run.Records, c.slos, run.Result.Duration)
		p.good += g.Good
		p.sent += g.Sent
		runs = append(runs, run.Result.Summary)
	}
	p.point = curve.Point{Load: rate, Summary: merge(runs)}
	return p, nil
}

package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/minisgl/minisgl/bench/internal/stats"
)

// metric is a figure that is compared.
type metric struct {
	key, name, unit string
	higherIsBetter  bool
}

var compared = []metric{
	{"mean_ttft_ms", "TTFT mean", "ms", false},
	{"p99_ttft_ms", "TTFT P99", "ms", false},
	{"mean_tpot_ms", "TPOT mean", "ms", false},
	{"p99_itl_ms", "ITL P99", "ms", false},
	{"mean_e2e_latency_ms", "E2E mean", "ms", false},
	{"output_throughput", "Output", "tok/s", true},
}

// row is the comparison of one metric. Changes are relative.
type row struct {
	metric
	a, b                []float64
	change, low, high   float64
	p, adjusted         float64
	better, worse, same bool
}

// minRuns is the fewest runs of each side that can give a p-value below 0.05
// after the correction for so many metrics.
const minRuns = 5

// judge compares the runs of two sides. A metric is better or worse if its
// ranks differ at the level alpha, corrected for the number of metrics, and its
// medians by at least threshold.
func judge(a, b []*run, threshold, alpha float64) []row {
	var rows []row
	for _, m := range compared {
		r := row{metric: m, a: values(a, m.key), b: values(b, m.key)}
		if len(r.a) == 0 || len(r.b) == 0 || stats.Median(r.a) == 0 {
			continue // nothing to compare, or nothing that a change could be a share of
		}
		r.change = stats.Change(r.a, r.b)
		r.low, r.high = stats.Interval(r.a, r.b)
		r.p = stats.MannWhitney(r.a, r.b)
		rows = append(rows, r)
	}
	p := make([]float64, len(rows))
	for i := range rows {
		p[i] = rows[i].p
	}
	for i, adjusted := range stats.Holm(p) {
		r := &rows[i]
		r.adjusted = adjusted
		if adjusted < alpha && math.Abs(r.change) >= threshold {
			r.better = (r.change > 0) == r.higherIsBetter
			r.worse = !r.better
		}
		// The same: even the ends of the interval are within the threshold.
		r.same = len(r.a) >= minRuns && len(r.b) >= minRuns && r.low > -threshold && r.high < threshold
	}
	return rows
}

func values(runs []*run, key string) []float64 {
	var out []float64
	for _, r := range runs {
		if v, ok := r.figure(key); ok {
			out = append(out, v)
		}
	}
	return out
}

func (r *row) words() string {
	switch {
	case r.worse:
		return "worse"
	case r.better:
		return "better"
	case r.same:
		return "same"
	}
	return "undecided"
}

func regression(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.worse })
}

// verdict is the comparison in a sentence.
func verdict(rows []row, runs int) string {
	text := ""
	for _, r := range rows {
		if r.worse || r.better {
			text += fmt.Sprintf("; %s is %s by %.1f%% (95%% interval %+.1f%% to %+.1f%%, p %.3f)", r.name, r.words(), 100*math.Abs(r.change), 100*r.low, 100*r.high, r.adjusted)
		}
	}
	if text != "" {
		return "B against A: " + text[2:] + "."
	}
	same := 0
	for _, r := range rows {
		if r.same {
			same++
		}
	}
	switch {
	case len(rows) == 0:
		return "There is nothing to compare: one side has no figures."
	case runs < minRuns:
		return fmt.Sprintf("Undecided: %d run(s) of a side are too few to tell; take %d or more.", runs, minRuns)
	case same == len(rows):
		return "A and B are the same within the threshold."
	}
	return fmt.Sprintf("No difference found; %d of %d metrics are the same within the threshold, the others vary too much to tell.", same, len(rows))
}

// Limits of the warnings, from experience with misleading benchmarks.
const (
	fewForP99   = 100
	shortOutput = 100
	longTail    = 4.0
	hitRateGap  = 0.05
	lagLimit    = 5.0 // ms
)

// warnings tells why the comparison may mislead.
func warnings(a, b []*run) []string {
	var out []string
	all := slices.Concat(a, b)
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	some := func(f func(*run) bool) bool { return slices.ContainsFunc(all, f) }
	add(min(len(a), len(b)) < 3, "Only %d and %d runs: take the median of 3 to 5.", len(a), len(b))
	add(some(func(r *run) bool { return r.Completed < fewForP99 }), "Runs have fewer than %d requests: their P99 is close to the maximum.", fewForP99)
	add(some(func(r *run) bool { return r.Completed > 0 && r.Output < shortOutput*r.Completed }), "Answers have fewer than %d tokens on average: TPOT says little.", shortOutput)
	add(some(func(r *run) bool { return r.Dataset == "random" || r.Dataset == "random-ids" }), "The prompts are random and share no prefix: nothing here is about prefix caches.")
	add(some(func(r *run) bool { return r.MeanTTFT > 0 && r.P99TTFT > longTail*r.MeanTTFT }), "P99 TTFT is more than %.0f times the mean: a long tail; see whether requests queue.", longTail)
	add(some(func(r *run) bool { return r.Failed > 0 }), "Requests failed: a server that refuses work looks faster.")
	add(some(func(r *run) bool { return r.Lag > lagLimit }), "The client was up to %.1f ms late: it may have been the limit.", slices.MaxFunc(all, func(x, y *run) int { return cmp.Compare(x.Lag, y.Lag) }).Lag)
	first := all[0]
	add(some(func(r *run) bool {
		return r.Dataset != first.Dataset || fmt.Sprint(r.Rate) != fmt.Sprint(first.Rate) || !sameLimit(r.Limit, first.Limit)
	}), "The runs differ in dataset, request rate or concurrency limit: they are not comparable.")
	hitA, okA := meanHitRate(a)
	hitB, okB := meanHitRate(b)
	add(okA && okB && math.Abs(hitA-hitB) > hitRateGap, "Cache hit rates differ: %.1f%% for A, %.1f%% for B.", 100*hitA, 100*hitB)
	return out
}

func sameLimit(a, b *int) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func meanHitRate(runs []*run) (float64, bool) {
	sum, n := 0.0, 0
	for _, r := range runs {
		if rate, ok := r.hitRate(); ok {
			sum += rate
			n++
		}
	}
	return sum / float64(max(n, 1)), n > 0
}

// Package stats compares two small samples.
package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// exactLimit is the largest sample for which all orders are counted.
const exactLimit = 30

// MannWhitney returns the two-sided p-value of the Mann-Whitney U test: how
// likely two samples from the same distribution differ in rank as much as a and
// b. Without ties and for at most 30 values each it is exact; else it is the
// normal approximation with corrections for ties and continuity. Empty samples
// give 1.
func MannWhitney(a, b []float64) float64 {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return 1
	}
	u, ties := rankSum(a, b)
	if ties == 0 && n <= exactLimit && m <= exactLimit {
		return exact(int(math.Round(min(u, float64(n*m)-u))), n, m)
	}
	total := float64(n + m)
	variance := float64(n*m) / 12 * (total + 1 - ties/(total*(total-1)))
	if variance <= 0 {
		return 1
	}
	z := (math.Abs(u-float64(n*m)/2) - 0.5) / math.Sqrt(variance)
	return min(1, math.Erfc(max(z, 0)/math.Sqrt2))
}

// rankSum returns U of a (pairs in which a is larger, ties half) and the sum of
// t^3-t over groups of t tied values.
func rankSum(a, b []float64) (u, ties float64) {
	type value struct {
		v     float64
		fromA bool
	}
	all := make([]value, 0, len(a)+len(b))
	for _, v := range a {
		all = append(all, value{v, true})
	}
	for _, v := range b {
		all = append(all, value{v, false})
	}
	slices.SortFunc(all, func(x, y value) int { return cmp.Compare(x.v, y.v) })
	ranks := 0.0
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].v == all[i].v {
			j++
		}
		rank := float64(i+j+1) / 2
		for _, v := range all[i:j] {
			if v.fromA {
				ranks += rank
			}
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	n := float64(len(a))
	return ranks - n*(n+1)/2, ties
}

// exact returns the share of the orders of n and m values whose U is at most u,
// or as far on the other side.
func exact(u, n, m int) float64 {
	// count[i][k]: ways to choose i of the values seen with k pairs.
	count := make([][]float64, n+1)
	for i := range count {
		count[i] = make([]float64, n*m+1)
	}
	count[0][0] = 1
	for last := 1; last <= n+m; last++ {
		for i := min(last, n); i >= 1; i-- {
			pairs := last - i // values of the other sample below
			if pairs > m {
				continue
			}
			for k := n * m; k >= pairs; k-- {
				count[i][k] += count[i-1][k-pairs]
			}
		}
	}
	tail, total := 0.0, 0.0
	for k, ways := range count[n] {
		total += ways
		if k <= u {
			tail += ways
		}
	}
	return min(1, 2*tail/total)
}

// Median returns the median of values, which must not be empty.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Change returns the relative difference of the medians, (b-a)/a. A median of 0
// gives 0 if both are, else NaN.
func Change(a, b []float64) float64 {
	x, y := Median(a), Median(b)
	if x == y {
		return 0
	}
	if x == 0 {
		return math.NaN()
	}
	return (y - x) / x
}

const resamples = 5_000

// Interval returns the 95% percentile bootstrap interval of Change(a, b). The
// same samples always give the same interval.
func Interval(a, b []float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(from, to []float64) {
		for i := range to {
			to[i] = from[rng.IntN(len(from))]
		}
	}
	x, y := make([]float64, len(a)), make([]float64, len(b))
	changes := make([]float64, 0, resamples)
	for range resamples {
		draw(a, x)
		draw(b, y)
		if c := Change(x, y); !math.IsNaN(c) {
			changes = append(changes, c)
		}
	}
	if len(changes) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(changes)
	last := float64(len(changes) - 1)
	return changes[int(0.025*last)], changes[int(math.Ceil(0.975*last))]
}

// Holm adjusts p-values for the number of tests made: rejecting those below a
// level keeps the chance of any false alarm below it.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	out := make([]float64, len(p))
	highest := 0.0
	for rank, i := range order {
		highest = max(highest, min(1, p[i]*float64(len(p)-rank)))
		out[i] = highest
	}
	return out
}

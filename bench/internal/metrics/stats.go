package metrics

import (
	"math"
	"slices"
)

// Stats describes a sample. With Count 0 there is nothing to describe, and the
// other fields are 0 and mean nothing.
type Stats struct {
	Count                                 int
	Mean, Median, Std, P90, P95, P99, Max float64
}

// Describe returns the statistics of the values, which it sorts in place. Std is
// the population's, as numpy.std gives it.
func Describe(values []float64) Stats {
	n := len(values)
	if n == 0 {
		return Stats{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / float64(n)
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return Stats{
		Count:  n,
		Mean:   mean,
		Median: Percentile(values, 50),
		Std:    math.Sqrt(squares / float64(n)),
		P90:    Percentile(values, 90),
		P95:    Percentile(values, 95),
		P99:    Percentile(values, 99),
		Max:    values[n-1],
	}
}

// Percentile returns the p-th percentile, 0 to 100, of sorted values by linear
// interpolation between the closest ranks, as numpy.percentile does. values must
// not be empty.
func Percentile(sorted []float64, p float64) float64 {
	rank := p / 100 * float64(len(sorted)-1)
	low := int(math.Floor(rank))
	high := min(low+1, len(sorted)-1)
	part := rank - float64(low)
	gap := sorted[high] - sorted[low]
	if part >= 0.5 {
		return sorted[high] - gap*(1-part)
	}
	return sorted[low] + gap*part
}

package stats

import "math"

// z95 is the 97.5% quantile of the standard normal distribution.
const z95 = 1.959963984540054

// Wilson returns the 95% Wilson score interval of a share of which good of n
// trials are a sample. Without trials it is all of 0 to 1.
func Wilson(good, n int) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	p, m := float64(good)/float64(n), float64(n)
	centre := p + z95*z95/(2*m)
	half := z95 * math.Sqrt(p*(1-p)/m+z95*z95/(4*m*m))
	scale := 1 + z95*z95/m
	return max((centre-half)/scale, 0), min((centre+half)/scale, 1)
}

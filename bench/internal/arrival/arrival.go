// Package arrival computes when requests are sent. A schedule is a list of
// absolute deadlines, counted from the start of a run and known before it, so
// that a late request never delays the ones after it and two runs with the same
// seed offer the same load.
package arrival

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// stream separates the arrival times from other random numbers of the same seed.
const stream = 0x6172726976616c73

// Poisson returns n deadlines of a Poisson process: the first is 0, and the gaps
// are independent and exponential with mean 1/rate seconds. rate is in requests
// per second; +Inf sends all at once, as Burst does.
func Poisson(rate float64, n int, seed uint64) ([]time.Duration, error) {
	rng := rand.New(rand.NewPCG(seed, stream))
	return schedule(rate, n, func() float64 { return -math.Log1p(-rng.Float64()) })
}

// Gaps returns n deadlines whose gaps, in units of the mean gap 1/rate, are drawn
// by gap; the first is 0. Each deadline but the first calls gap once.
func Gaps(rate float64, n int, gap func() float64) ([]time.Duration, error) {
	return schedule(rate, n, gap)
}

// Constant returns n deadlines that are 1/rate seconds apart; the first is 0.
func Constant(rate float64, n int) ([]time.Duration, error) {
	return schedule(rate, n, func() float64 { return 1 })
}

// Burst returns n deadlines at 0.
func Burst(n int) ([]time.Duration, error) {
	return schedule(math.Inf(1), n, func() float64 { return 0 })
}

// schedule sums gaps, given in units of the mean gap, in float64 so that
// rounding to nanoseconds does not add up.
func schedule(rate float64, n int, gap func() float64) ([]time.Duration, error) {
	if !(rate > 0) {
		return nil, fmt.Errorf("arrival: rate is %v requests per second, want more than 0", rate)
	}
	if n < 0 {
		return nil, fmt.Errorf("arrival: number of requests is %d, want 0 or more", n)
	}
	deadlines := make([]time.Duration, n)
	at := 0.0
	for i := 1; i < n; i++ {
		at += gap() / rate
		if at >= math.MaxInt64/float64(time.Second) {
			return nil, fmt.Errorf("arrival: at %v requests per second, request %d would start after more than 290 years", rate, i+1)
		}
		deadlines[i] = time.Duration(at * float64(time.Second))
	}
	return deadlines, nil
}

package stats

import (
	"math"
	"testing"
)

// Right values: the formula of Wilson (1927) for 95%, worked out by hand; for 0
// of n its lower end is 0, and for n of n its upper end is 1.
func TestWilson(t *testing.T) {
	for _, tt := range []struct {
		good, n   int
		low, high float64
	}{
		{0, 0, 0, 1}, {100, 100, 0.963007, 1}, {0, 10, 0, 0.277533}, {5, 10, 0.236593, 0.763407}, {95, 100, 0.888250, 0.978456},
	} {
		low, high := Wilson(tt.good, tt.n)
		if math.Abs(low-tt.low) > 1e-6 || math.Abs(high-tt.high) > 1e-6 {
			t.Errorf("%d of %d: %.6f to %.6f, want %.6f to %.6f", tt.good, tt.n, low, high, tt.low, tt.high)
		}
	}
}

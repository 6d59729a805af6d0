package arrival

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPoissonProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1e-3, 1e9).Draw(t, "rate")
		n := rapid.IntRange(0, 50).Draw(t, "n")
		seed := rapid.Uint64().Draw(t, "seed")
		got, err := Poisson(rate, n, seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != n || !slices.IsSorted(got) || (n > 0 && got[0] != 0) {
			t.Fatalf("want %d sorted deadlines from 0, got %v", n, got)
		}
		again, _ := Poisson(rate, n, seed)
		longer, _ := Poisson(rate, n+5, seed)
		if !slices.Equal(got, again) || !slices.Equal(got, longer[:n]) {
			t.Fatal("the schedule must depend on the seed alone, and a longer one must begin with the shorter one")
		}
	})
}

// The gaps of a Poisson process have mean and standard deviation 1/rate, and
// P(gap > 1/rate) = 1/e. 200,000 gaps put each within 1% (4.5 standard errors).
func TestPoissonDistribution(t *testing.T) {
	const n, rate = 200_001, 8.0
	deadlines, err := Poisson(rate, n, 42)
	if err != nil {
		t.Fatal(err)
	}
	var sum, squares, above float64
	for i := 1; i < n; i++ {
		gap := (deadlines[i] - deadlines[i-1]).Seconds() * rate
		sum += gap
		squares += gap * gap
		if gap > 1 {
			above++
		}
	}
	mean := sum / (n - 1)
	std := math.Sqrt(squares/(n-1) - mean*mean)
	for name, pair := range map[string][2]float64{"mean": {mean, 1}, "std": {std, 1}, "above mean": {above / (n - 1), 1 / math.E}} {
		if math.Abs(pair[0]-pair[1]) > 0.01 {
			t.Errorf("%s of the gaps is %.4f, want %.4f", name, pair[0], pair[1])
		}
	}
	other, _ := Poisson(rate, n, 43)
	if slices.Equal(deadlines, other) {
		t.Error("two seeds gave the same schedule")
	}
}

func TestFixedSchedules(t *testing.T) {
	constant, _ := Constant(4, 4)
	burst, _ := Burst(3)
	inf, _ := Poisson(math.Inf(1), 3, 1)
	for _, tt := range []struct {
		name      string
		got, want []time.Duration
	}{
		{"constant", constant, []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond}},
		{"burst", burst, []time.Duration{0, 0, 0}},
		{"infinite rate", inf, []time.Duration{0, 0, 0}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestBadRates(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(-1), 1e-300} {
		if _, err := Poisson(rate, 2, 1); err == nil {
			t.Errorf("rate %v: no error", rate)
		}
	}
	if _, err := Burst(-1); err == nil {
		t.Error("-1 requests: no error")
	}
}

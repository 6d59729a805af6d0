package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Right values come from counting all orders; the last but one from the formula
// with ties, worked out apart.
func TestMannWhitney(t *testing.T) {
	for _, tt := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 2.0 / 252},
		{[]float64{6, 7, 8, 9, 10}, []float64{1, 2, 3, 4, 5}, 2.0 / 252},
		{[]float64{1, 4, 5, 7}, []float64{2, 3, 6, 8, 9}, 0.5555555555555556},
		{[]float64{1, 2, 4, 7, 9, 12}, []float64{3, 5, 6, 8, 10, 11, 13}, 0.36596736596736595},
		{[]float64{1}, []float64{2}, 1},
		{[]float64{1, 2, 2, 3}, []float64{2, 3, 4, 5}, 0.13665824773814753},
		{[]float64{3, 3}, []float64{3, 3}, 1},
		{nil, []float64{1}, 1},
	} {
		if got := MannWhitney(tt.a, tt.b); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%v, %v: %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// Of two samples of one distribution, at most 5% have p below 0.05, exact or not.
func TestFalseAlarms(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{5, 40} {
		alarms := 0
		for range 2000 {
			a, b := make([]float64, n), make([]float64, n)
			for i := range n {
				a[i], b[i] = rng.ExpFloat64(), rng.ExpFloat64()
			}
			if MannWhitney(a, b) < 0.05 {
				alarms++
			}
		}
		if alarms > 130 { // 5% is 100, three standard errors are 30
			t.Errorf("%d values: %d of 2000 alarms", n, alarms)
		}
	}
}

func TestMannWhitneyProperties(t *testing.T) {
	values := rapid.SliceOfN(rapid.Float64Range(-10, 10), 1, 12)
	rapid.Check(t, func(t *rapid.T) {
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		p := MannWhitney(a, b)
		if p < 0 || p > 1 || math.Abs(p-MannWhitney(b, a)) > 1e-9 {
			t.Fatalf("p %v, other way round %v", p, MannWhitney(b, a))
		}
	})
}

func TestChangeAndInterval(t *testing.T) {
	a, b := []float64{100, 101, 99, 100, 102}, []float64{110, 111, 109, 110, 112}
	if got := Change(a, b); math.Abs(got-0.1) > 1e-12 {
		t.Errorf("change %v", got)
	}
	low, high := Interval(a, b)
	if !(low > 0.06 && low <= 0.1 && high >= 0.1 && high < 0.14) {
		t.Errorf("interval %v to %v of a change of 10%%", low, high)
	}
	if low, high := Interval(a, slices.Clone(a)); low > 0 || high < 0 {
		t.Errorf("interval %v to %v of no change", low, high)
	}
	if !math.IsNaN(Change([]float64{0}, []float64{1})) || Change([]float64{0}, []float64{0}) != 0 {
		t.Error("changes from 0")
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.5, 0.02, 0.04})
	if diff := cmp.Diff([]float64{0.04, 0.5, 0.06, 0.08}, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

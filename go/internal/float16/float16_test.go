package float16

import (
	"math"
	"testing"
)

// TestRound looks at every finite float16, at what lies half way to the next, and at its neighbours.
func TestRound(t *testing.T) {
	check := func(x float32, want uint16) {
		t.Helper()
		for _, sign := range []uint16{0, 0x8000} {
			if sign != 0 {
				x = -x
			}
			if got := Round(x); got != want|sign {
				t.Fatalf("%v becomes %#x, want %#x", x, got, want|sign)
			}
		}
	}
	for h := uint16(0); h < 0x7c00; h++ {
		low, high := Float32(h), Float32(h+1)
		if h+1 == 0x7c00 {
			high = 65536
		}
		middle := (low + high) / 2 // exact: it takes one bit more than a float16
		check(low, h)
		check(middle, h+h&1)
		check(math.Nextafter32(middle, 0), h)
		check(math.Nextafter32(middle, math.MaxFloat32), h+1)
	}
	check(math.MaxFloat32, 0x7c00)
	check(math.SmallestNonzeroFloat32, 0)
	check(float32(math.Inf(1)), 0x7c00)
	if nan := Round(float32(math.NaN())); nan&0x7fff <= 0x7c00 {
		t.Errorf("a NaN becomes %#x", nan)
	}
}

package float8

import (
	"math"
	"testing"
)

// The format's own figures: its largest, smallest normal and smallest values.
func TestFloat32(t *testing.T) {
	for b, want := range map[uint8]float32{0: 0, 1: 0x1p-9, 7: 7 * 0x1p-9, 8: 0x1p-6, 0x38: 1, 0x3c: 1.5, 0x7e: Largest, 0xb8: -1, 0x81: -0x1p-9} {
		if got := Float32(b); got != want {
			t.Errorf("%#x is %v, want %v", b, got, want)
		}
	}
	for _, b := range []uint8{0x7f, 0xff} {
		if got := Float32(b); got == got {
			t.Errorf("%#x is %v, want NaN", b, got)
		}
	}
	if !math.Signbit(float64(Float32(0x80))) {
		t.Error("0x80 has no sign")
	}
}

// TestRound looks at every finite value, at what lies half way to the next, and at its neighbours.
func TestRound(t *testing.T) {
	check := func(x float32, want uint8) {
		t.Helper()
		if got := Round(x); got != want {
			t.Fatalf("%v becomes %#x, want %#x", x, got, want)
		}
		if got := Round(-x); got != want|0x80 {
			t.Fatalf("%v becomes %#x, want %#x", -x, got, want|0x80)
		}
	}
	for b := uint8(0); b < 0x7e; b++ {
		low, high := Float32(b), Float32(b+1)
		half := (low + high) / 2
		check(low, b)
		check(half, b+b&1)
		check(math.Nextafter32(half, 0), b)
		check(math.Nextafter32(half, high), b+1)
	}
	for _, x := range []float32{Largest, Largest + 1, 464, 1e9, float32(math.Inf(1))} {
		check(x, 0x7e)
	}
	if Round(float32(math.NaN()))&0x7f != nan {
		t.Error("a NaN becomes a number")
	}
}

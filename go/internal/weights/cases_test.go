package weights

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
)

// Cases from public bug reports about model files, by their numbers.

// TestA42_QuantizedError bounds the error of every value of the quantized tiny
// models by what their formats allow: half a step of the block's scale, a whole
// one where the largest value is out of the codes' reach, and the rounding of
// scales.
func TestA42_QuantizedError(t *testing.T) {
	files, err := filepath.Glob(tiny + "/*/q*.gguf")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d quantized models: %v", len(files), err)
	}
	kinds := map[Type]bool{}
	for _, file := range files {
		exact, quantized := openTest(t, filepath.Dir(file)), openTest(t, file)
		for _, name := range exact.Names() {
			x, y := tensorOf(t, exact, name), tensorOf(t, quantized, name)
			kinds[y.Type()] = true
			checkError(t, fmt.Sprintf("%s: %s (%v)", file, name, y.Type()), x, y)
		}
	}
	for _, kind := range []Type{F32, Q4_0, Q4_1, Q5_0, Q8_0, Q4K, Q6K} {
		if !kinds[kind] {
			t.Errorf("no tensor is stored as %v", kind)
		}
	}
}

func checkError(t *testing.T, what string, x, y Tensor) {
	t.Helper()
	size := formats[y.Type()].blockSize
	a, b := make([]float32, x.Cols()), make([]float32, x.Cols())
	for row := range x.Rows() {
		x.Row(a, row)
		y.Row(b, row)
		for at := 0; at < len(a); at += size {
			limit := formatError(y.Type(), a[at:at+size])
			for i, want := range a[at : at+size] {
				if d := math.Abs(float64(want) - float64(b[at+i])); !(d <= limit) {
					t.Fatalf("%s: value %d of row %d is %v, want %v within %v", what, at+i, row, b[at+i], want, limit)
				}
			}
		}
	}
}

// formatError is how far a value of a block may be from what was quantized.
func formatError(kind Type, block []float32) float64 {
	low, high := float64(slices.Min(block)), float64(slices.Max(block))
	largest, below := max(high, -low), max(-low, 0)
	const half = 1.0 / 1024 // twice the rounding of a float16
	switch kind {
	case Q8_0:
		return largest * (0.5/127 + half)
	case Q4_0:
		return largest * (1.0/8 + half)
	case Q5_0:
		return largest * (1.0/16 + half)
	case Q4_1:
		return (high-low)*(0.5/15+half) + math.Abs(low)*half
	case Q4K: // scales of 6 bits for 15 steps, and minima of 6 bits
		spread := (high + below) / 15
		return spread*(0.5+15*0.5/63) + below*0.5/63 + (high+2*below)*half
	case Q6K: // scales of 8 bits for 31 steps
		return largest/31*(0.5+31*0.5/127) + largest*half
	}
	return 0
}

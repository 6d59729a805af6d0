// Package float8 converts e4m3, the eight-bit floats of caches and of quantized weights: a sign, four bits of exponent,
// three of mantissa, no infinities. See arXiv:2209.05433.
package float8

import "math"

// Largest is the largest finite value.
const Largest = 448

const nan = 0x7f // of either sign

// IsNaN reports whether b is not a number.
func IsNaN(b uint8) bool { return b&0x7f == nan }

// Float32 widens exactly: with the bits in the places of a float32's, the value is 2^-120 of what it should be.
func Float32(b uint8) float32 {
	if IsNaN(b) {
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b&0x80)<<24|uint32(b&0x7f)<<20) * 0x1p120
}

// Round rounds to the nearest value, to the even one of two. What is too large becomes Largest, and a NaN stays one.
func Round(x float32) uint8 {
	sign, magnitude := uint8(0), math.Abs(float64(x))
	if math.Signbit(float64(x)) {
		sign = 0x80
	}
	switch {
	case x != x:
		return sign | nan
	case magnitude >= Largest:
		return sign | nan - 1
	case magnitude == 0:
		return sign
	}
	_, exponent := math.Frexp(magnitude) // magnitude is in [1/2, 1) · 2^exponent
	exponent = max(exponent, -5)         // below 2^-6 values are evenly spaced
	steps := math.RoundToEven(math.Ldexp(magnitude, 4-exponent))
	return sign | uint8(int(steps)+(exponent+5)<<3)
}

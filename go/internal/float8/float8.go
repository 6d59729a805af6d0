// Package float8 converts e4m3, the eight-bit floats of caches: a sign, four bits of exponent, three of mantissa, no infinities.
package float8

import "math"

// Largest is the largest finite value.
const Largest = 448

const nan = 0x7f // of either sign

// Float32 widens exactly.
func Float32(b uint8) float32 {
	exponent, mantissa := int(b>>3&15), float64(b&7)
	magnitude := math.Ldexp(8+mantissa, exponent-10)
	switch {
	case b&0x7f == nan:
		magnitude = math.NaN()
	case exponent == 0:
		magnitude = math.Ldexp(mantissa, -9)
	}
	if b&0x80 != 0 {
		magnitude = -magnitude
	}
	return float32(magnitude)
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

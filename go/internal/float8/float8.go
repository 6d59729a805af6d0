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
	bits := math.Float32bits(x)
	sign, magnitude := uint8(bits>>24)&0x80, bits&0x7fffffff
	switch {
	case magnitude > 0x7f800000:
		return sign | nan
	case magnitude >= 0x43e00000: // 448
		return sign | nan - 1
	case magnitude < 0x3c800000: // 2^-6: adding 2^14 leaves multiples of 2^-9 in the mantissa
		return sign | uint8(math.Float32bits(math.Float32frombits(magnitude)+0x1p14)-0x46800000)
	}
	const bias = (127 - 7) << 23 // the exponents' difference
	return sign | uint8((magnitude-bias+0x7ffff+magnitude>>20&1)>>20)
}

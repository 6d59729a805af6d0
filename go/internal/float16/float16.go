// Package float16 converts IEEE 754 half precision.
package float16

import "math"

// Float32 widens a half exactly. Moving its exponent and mantissa into a float32's places scales the value by
// 2^-112, for subnormals too; infinities and NaNs get the float32 exponent instead.
func Float32(h uint16) float32 {
	bits := uint32(h&0x7fff) << 13
	magnitude := math.Float32bits(math.Float32frombits(bits) * 0x1p112)
	if bits >= 0x7c00<<13 {
		magnitude = bits | 0x7f800000
	}
	return math.Float32frombits(magnitude | uint32(h&0x8000)<<16)
}

// Round rounds to the nearest half, to the even one of two, and to infinity what is too large. A NaN stays one.
func Round(x float32) uint16 {
	const (
		smallestNormal = 0x1p-14
		tooLarge       = 65520 // half way between the largest finite half and what would come next
		rebias         = (127 - 15) << 23
	)
	bits := math.Float32bits(x)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch magnitude := math.Float32frombits(bits); {
	case x != x:
		return sign | 0x7e00
	case magnitude >= tooLarge:
		return sign | 0x7c00
	case magnitude < smallestNormal:
		return sign | uint16(math.RoundToEven(float64(magnitude)*0x1p24))
	}
	return sign | uint16((bits-rebias+0xfff+bits>>13&1)>>13)
}

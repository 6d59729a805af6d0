package weights

import (
	"encoding/binary"
	"math"
)

// float16 widens an IEEE half exactly. Moving its exponent and mantissa into a float32's places scales the value by
// 2^-112, for subnormals too; infinities and NaNs get the float32 exponent instead.
func float16(h uint16) float32 {
	bits := uint32(h&0x7fff) << 13
	magnitude := math.Float32bits(math.Float32frombits(bits) * 0x1p112)
	if bits >= 0x7c00<<13 {
		magnitude = bits | 0x7f800000
	}
	return math.Float32frombits(magnitude | uint32(h&0x8000)<<16)
}

// half reads the float16 at the start of b.
func half(b []byte) float32 { return float16(binary.LittleEndian.Uint16(b)) }

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float16(binary.LittleEndian.Uint16(src))
		src = src[2:]
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src)) << 16)
		src = src[2:]
	}
}

package weights

import (
	"encoding/binary"
	"math"

	"github.com/minisgl/minisgl/go/internal/float16"
)

// half reads the float16 at the start of b.
func half(b []byte) float32 { return float16.Float32(binary.LittleEndian.Uint16(b)) }

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float16.Float32(binary.LittleEndian.Uint16(src))
		src = src[2:]
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src)) << 16)
		src = src[2:]
	}
}

package weights

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/minisgl/minisgl/go/internal/float16"
)

// encoder quantizes one group: it writes the codes and returns the scale. The values are finite.
type encoder func(codes []byte, values []float32) float32

// encoders has the encoder and its bytes of codes in a group for each number of bits.
var encoders = map[int]struct {
	encode encoder
	size   int
}{
	8: {encodeQ80, groupSize},
	4: {encodeQ40, groupSize / 2},
}

// GroupingOf returns how Quantize stores values of 8 or 4 bits.
func GroupingOf(bits int) Grouping {
	if bits == 4 {
		return formats[Q4_0].Grouping
	}
	return formats[Q8_0].Grouping
}

// QuantizedBits returns the bits that this tensor has in a model that is quantized to 8 or 4 bits, 0 if it stays as it
// is: see the package comment.
func (t Tensor) QuantizedBits(bits int) int { return bitsFor(t, bits) }

// Quantize quantizes one row into codes and scales as GroupingOf(bits) says, the way Convert does.
func (t Tensor) Quantize(codes []byte, scales []float32, row, bits int) error {
	values := make([]float32, t.Cols())
	t.Row(values, row)
	packed, halves := make([]byte, len(values)/groupSize*encoders[bits].size), make([]byte, len(scales)*scaleBytes)
	if err := quantizeRow(packed, halves, values, bits); err != nil {
		return fmt.Errorf("tensor %q, row %d: %w", t.name, row, err)
	}
	apart := Tensor{kind: Q8_0, shape: []int{1, len(values)}, data: packed, scales: halves}
	if bits == 4 {
		apart.kind = Q4_0
	}
	apart.splitApart(groups{codes: codes, scales: scales}, 0)
	return nil
}

// quantizeRow quantizes whole groups of a row into codes and float16 scales.
func quantizeRow(codes, scales []byte, row []float32, bits int) error {
	coder := encoders[bits]
	for g := range len(row) / groupSize {
		values := row[g*groupSize:][:groupSize]
		for i, x := range values {
			if !(math.Abs(float64(x)) <= math.MaxFloat32) {
				return fmt.Errorf("value %d is %v, which can't be quantized", g*groupSize+i, x)
			}
		}
		scale := coder.encode(codes[g*coder.size:][:coder.size], values)
		half := float16.Round(scale)
		if half&0x7fff == 0x7c00 {
			return fmt.Errorf("values %d to %d have the scale %v, which passes the range of float16", g*groupSize, (g+1)*groupSize-1, scale)
		}
		binary.LittleEndian.PutUint16(scales[g*scaleBytes:], half)
	}
	return nil
}

// encodeQ80 is the rule of ggml's quantize_row_q8_0_ref: halves are rounded away from zero.
func encodeQ80(codes []byte, values []float32) float32 {
	var largest float32
	for _, x := range values {
		largest = max(largest, float32(math.Abs(float64(x))))
	}
	scale := largest / 127
	inverse := inverseOf(scale)
	for i, x := range values {
		codes[i] = byte(int8(math.Round(float64(x * inverse))))
	}
	return scale
}

// encodeQ40 is the rule of ggml's quantize_row_q4_0_ref. The value of the largest magnitude becomes -8, so that one more code is of
// use. The product is converted before the sum, because Go may otherwise fuse the two roundings.
func encodeQ40(codes []byte, values []float32) float32 {
	var largest float32
	magnitude := float32(-1)
	for _, x := range values {
		if m := float32(math.Abs(float64(x))); m > magnitude {
			largest, magnitude = x, m
		}
	}
	scale := largest / -8
	inverse := inverseOf(scale)
	code := func(x float32) byte { return min(byte(float32(x*inverse)+8.5), 15) }
	for i := range codes {
		codes[i] = code(values[i]) | code(values[i+groupSize/2])<<4
	}
	return scale
}

// inverseOf returns 1/scale, and 0 where that is infinite: such scales are zero as float16, so codes don't matter.
func inverseOf(scale float32) float32 {
	inverse := 1 / scale
	if math.IsInf(float64(inverse), 0) {
		return 0
	}
	return inverse
}

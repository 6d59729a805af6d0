package weights

import (
	"hash/fnv"
	"math"
	"strings"
)

// Dummy makes random tensors of any name and shape, for runs where only sizes and speed matter. It takes no memory:
// a row is made when it is read, always the same for the same name and row.
type Dummy struct{}

// Tensor finds nothing: a model that asks which tensors there are is built as its configuration says.
func (Dummy) Tensor(string) (Tensor, bool) { return Tensor{}, false }

// Make returns a tensor. A norm's weights are 1, biases are small, and a matrix's values are about normal with a
// variance of 1/cols, so that each layer keeps the scale of what it reads and logits are a few units wide.
func (Dummy) Make(name string, rows, cols int) Tensor {
	t := Tensor{name: name, kind: F32, shape: []int{rows, cols}}
	switch {
	case strings.HasSuffix(name, "norm.weight"):
		t.make = ones
		return t
	case strings.HasSuffix(name, ".bias"):
		t.make = noise(name, 0.02)
	default:
		t.make = noise(name, 1/math.Sqrt(float64(cols)))
	}
	return t
}

func ones(dst []float32, _ int) {
	for i := range dst {
		dst[i] = 1
	}
}

// The sum of 4 random bytes: its mean, and its standard deviation, that of 4 even distributions over 256 values.
const byteMean = 2 * 255

var byteDeviation = math.Sqrt(4 * (256*256 - 1) / 12.0)

// noise returns a source of rows with that standard deviation: sums of 4 bytes of SplitMix64 (Steele et al., 2014),
// seeded by the name and the row.
func noise(name string, deviation float64) func(dst []float32, row int) {
	h := fnv.New64a()
	h.Write([]byte(name))
	seed, scale := h.Sum64(), float32(deviation/byteDeviation)
	return func(dst []float32, row int) {
		state := mix(seed + uint64(row))
		for i := 0; i < len(dst); i += 2 {
			state += 0x9e3779b97f4a7c15
			bits := mix(state)
			dst[i] = scale * float32(byteSum(bits))
			if i+1 < len(dst) {
				dst[i+1] = scale * float32(byteSum(bits>>32))
			}
		}
	}
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// byteSum adds the lowest 4 bytes of x, less their mean.
func byteSum(x uint64) int32 {
	x = x&0x00ff00ff + x>>8&0x00ff00ff
	return int32(x&0xffff+x>>16&0xffff) - byteMean
}

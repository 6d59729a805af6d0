package engine

import (
	"slices"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// Quantization says how the projections, embeddings and the head are computed with.
type Quantization int

const (
	AsStored    Quantization = iota // quantized weights as they are, others in Config.DType
	Dequantized                     // all in Config.DType
	Int8                            // weights that are not quantized become 8 bits in groups of 32
	Int4                            // likewise 4 bits, but 8 for embeddings and the head
	Float8                          // weights that are not quantized become e4m3; on devices that have it
)

// bits returns the bits that a tensor is to be quantized to, 0 for none.
func (q Quantization) bits(t *weights.Tensor) int {
	switch q {
	case Int8:
		return t.QuantizedBits(8)
	case Int4:
		return t.QuantizedBits(4)
	}
	return 0
}

// grouping returns how a part's values are quantized, or will be.
func (ld *loader) grouping(part stacked) (weights.Grouping, bool) {
	if ld.quantization == Dequantized || part.tensor.Cols()%rowMultiple != 0 {
		return weights.Grouping{}, false
	}
	if g, ok := part.tensor.Grouping(); ok {
		return g, true
	}
	if bits := ld.quantization.bits(part.tensor); bits > 0 {
		return weights.GroupingOf(bits), true
	}
	return weights.Grouping{}, false
}

// rowMultiple is what the columns of a quantized weight are a multiple of.
const rowMultiple = 32

// isFloat8 reports whether a part's values are e4m3, or will be.
func (ld *loader) isFloat8(part stacked) bool {
	switch {
	case !ld.hasFloat8 || ld.quantization == Dequantized:
		return false
	case part.tensor == nil || part.tensor.HasFloat8():
		return true
	}
	return ld.quantization == Float8 && part.tensor.QuantizedBits(8) > 0
}

// weightType returns the type that a stack of tensors is loaded as: a quantized
// one that holds all of them exactly, or DType if any of them is not quantized.
func (ld *loader) weightType(stack []stacked) ops.DType {
	if !slices.ContainsFunc(stack, func(part stacked) bool { return !ld.isFloat8(part) }) {
		return ops.F8
	}
	common, found := ld.dtype, false
	for _, part := range stack {
		if part.tensor == nil {
			continue
		}
		g, ok := ld.grouping(part)
		if !ok {
			return ld.dtype
		}
		dt := quantType(g)
		if found && dt != common {
			dt = ops.Q8M
		}
		common, found = dt, true
	}
	return common
}

// quantType returns the smallest quantized type that holds a grouping's values exactly.
func quantType(g weights.Grouping) ops.DType {
	switch {
	case g.Size == 32 && !g.Minima && g.Half && g.Bits <= 4:
		return ops.Q4
	case g.Size == 32 && !g.Minima && g.Half:
		return ops.Q8
	case g.Size == 32 && g.Minima && g.Bits <= 4:
		return ops.Q4M
	case g.Size == 16 && !g.Minima:
		return ops.Q6
	}
	return ops.Q8M
}

// quantRow fills dst, a row of type q, with row r of a part.
func (ld *loader) quantRow(dst device.QuantRow, q ops.Quant, part stacked, r int) {
	if part.tensor == nil {
		for i := range dst.Codes {
			dst.Codes[i] = uint8(q.Zero)
		}
		clear(dst.Scales)
		clear(dst.Minima)
		return
	}
	g, _ := ld.grouping(part)
	scales, minima := dst.Scales, dst.Minima
	if g.Size != q.Group {
		scales, minima = make([]float32, len(dst.Codes)/g.Size), make([]float32, len(dst.Codes)/g.Size)
	}
	if _, stored := part.tensor.Grouping(); stored {
		part.tensor.Groups(dst.Codes, scales, minima, part.skip+r-part.first)
	} else if err := part.tensor.Quantize(dst.Codes, scales, part.skip+r-part.first, ld.quantization.bits(part.tensor)); err != nil {
		ld.failLater(err)
	}
	for i := range dst.Scales {
		from := i * q.Group / g.Size
		dst.Scales[i] = scales[from]
		if q.Minima && !g.Minima {
			dst.Minima[i] = float32(-g.Zero) * scales[from] // Zero is a power of two: exact
		} else if q.Minima {
			dst.Minima[i] = minima[from]
		}
	}
	if !q.Minima {
		for i := range dst.Codes {
			dst.Codes[i] += uint8(q.Zero - g.Zero)
		}
	}
}

// float8Row fills a row of F8 with row r of a part.
func (ld *loader) float8Row(dst []uint8, scales []float32, part stacked, r int) {
	var err error
	switch {
	case part.tensor == nil:
		clear(dst)
		clear(scales)
	case part.tensor.HasFloat8():
		err = part.tensor.Float8(dst, scales, part.skip+r-part.first, ops.F8LargestScale)
	default:
		err = part.tensor.RoundFloat8(dst, scales, part.skip+r-part.first, ops.F8LargestScale)
	}
	if err != nil {
		ld.failLater(err)
	}
}

// bits16 copies the stored bfloat16 values of a row.
func bits16(dst []uint16, row []byte) {
	for i := range dst {
		dst[i] = uint16(row[2*i]) | uint16(row[2*i+1])<<8
	}
}

package weights

import "slices"

// Tensor is a view of one tensor of an open Checkpoint. It must not be used after the checkpoint is closed.
type Tensor struct {
	name  string
	kind  Type
	shape []int // Hugging Face order: the last dimension is contiguous
	data  []byte
	// scales, if not nil, are the float16 scales of blocks of 32 values, and data then holds only the blocks' codes: the
	// weight is quantized, and lies in a safetensors file.
	scales []byte
	float8 *float8Scales // if not nil, the scales of a weight of F8
	order  permutation
	// plusOne: one is to be taken off each value; llama.cpp's converter adds it to the weights of norms whose model
	// computes x * (1 + weight).
	plusOne bool
	make    func(dst []float32, row int) // if not nil, makes the rows instead of data
}

// Name returns the tensor's Hugging Face name.
func (t Tensor) Name() string { return t.name }

// Type returns how the values are stored. A quantized weight of a safetensors file has the type of its blocks, Q8_0 or
// Q4_0, though codes and scales lie apart there.
func (t Tensor) Type() Type { return t.kind }

// Shape returns the dimensions in Hugging Face order: [rows, cols] for a matrix, [n] for a vector.
func (t Tensor) Shape() []int { return slices.Clone(t.shape) }

// Rows returns the product of all dimensions but the last, which is 1 for a vector.
func (t Tensor) Rows() int {
	rows := 1
	for i := range len(t.shape) - 1 {
		rows *= t.shape[i]
	}
	return rows
}

// Cols returns the last dimension, 1 for a scalar.
func (t Tensor) Cols() int {
	if len(t.shape) == 0 {
		return 1
	}
	return t.shape[len(t.shape)-1]
}

// Bytes returns the size of the tensor in its file.
func (t Tensor) Bytes() int64 { return int64(len(t.data) + len(t.scales)) }

// HasBF16 reports whether the tensor's values are stored as bfloat16 and can be read so.
func (t Tensor) HasBF16() bool {
	return t.kind == BF16 && !t.plusOne && t.make == nil && len(t.shape) > 1
}

// BF16 returns the stored bytes of a row, two a value, of a tensor that HasBF16. They are not to be changed.
func (t Tensor) BF16(row int) []byte {
	size := 2 * t.Cols()
	return t.data[t.order.source(row)*size:][:size]
}

// Row decodes one row exactly into the first Cols() values of dst. It is safe for concurrent use. Row panics, as an
// index does, when row is not in [0, Rows()) or dst is too short.
func (t Tensor) Row(dst []float32, row int) {
	format := &formats[t.kind]
	cols := t.Cols()
	dst = dst[:cols]
	if t.make != nil {
		t.make(dst, row)
		return
	}
	if t.scales != nil {
		t.expandRow(dst, row)
		return
	}
	if t.float8 != nil {
		t.widenRow(dst, row)
		return
	}
	if len(t.shape) == 1 && t.order.half > 0 {
		size := format.blockBytes
		for i := range dst {
			format.read(dst[i:i+1], t.data[t.order.source(i)*size:][:size])
		}
		return
	}
	size := cols / format.blockSize * format.blockBytes
	format.read(dst, t.data[t.order.source(row)*size:][:size])
	for i := range dst {
		if t.plusOne {
			dst[i]--
		}
	}
}

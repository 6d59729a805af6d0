// Package ops is the vocabulary of a forward pass: tensors as views of device
// memory, a dozen fused operations, and the list that a model records and a
// device runs in one call.
//
// Nothing here computes. A List is data: it prints (String), so that every
// model has a golden file, and its operations have the same layout as the
// kernels' msgl_op, so that a device hands them over without copying.
package ops

import (
	"fmt"
	"unsafe"
)

// Addr is an address in a device's memory; 0 means "no tensor". Only the device
// that made it can tell what it points at.
type Addr uint64

// DType is the element type of a Tensor. The numbers are part of the kernels'
// boundary (msgl_dtype in kernels/cpu/msgl.h).
type DType int32

const (
	F32  DType = 0 // IEEE 754 single precision
	BF16 DType = 1 // bfloat16, the upper half of an F32
	I32  DType = 2 // signed 32-bit integer

	// The types of quantized weights; see Quant.
	Q8  DType = 3 // 8 bits in groups of 32, float16 scales: ggml's Q8_0 and Q5_0
	Q4  DType = 4 // 4 bits in groups of 32, float16 scales: ggml's Q4_0
	Q4M DType = 5 // 4 bits in groups of 32, with minima: ggml's Q4_1 and Q4_K
	Q6  DType = 6 // 8 bits in groups of 16: ggml's Q6_K and Q3_K
	Q8M DType = 7 // 8 bits in groups of 16, with minima: any other, and weights stacked of several types

	F16 DType = 8 // IEEE 754 half precision
	I8  DType = 9 // signed codes of a key or value cache; see CacheCols

	F8 DType = 10 // e4m3, of a key or value cache, or of a weight, see F8Group; the CPU device has none
)

// F8Group is the number of columns of a weight of F8 that share a scale. A value times its
// scale is rounded to BF16, and is then like a weight of BF16.
const F8Group = 64

// F8LargestScale is above all scales of a weight of F8.
const F8LargestScale = 128

// CacheCols returns the columns of a key or value cache of kv heads of dim
// elements. A row of an I8 cache is all heads' codes and then, as float32, each
// head's scale: its largest magnitude / 127.
func CacheCols(dt DType, kv, dim int) int {
	if dt == I8 {
		return kv * (dim + 4)
	}
	return kv * dim
}

// Quant describes a quantized type. A row is a code for each column and a scale,
// perhaps a minimum, for each group of columns. A value is
// (code - Zero) * scale, or code * scale + minimum.
type Quant struct {
	Bits, Group, Zero int
	Minima            bool
}

// Quant returns how the values of a quantized type are stored; ok is false for
// other types.
func (d DType) Quant() (q Quant, ok bool) {
	switch d {
	case Q8:
		return Quant{8, 32, 128, false}, true
	case Q4:
		return Quant{4, 32, 8, false}, true
	case Q4M:
		return Quant{4, 32, 0, true}, true
	case Q6:
		return Quant{8, 16, 128, false}, true
	case Q8M:
		return Quant{8, 16, 0, true}, true
	}
	return Quant{}, false
}

// Float reports whether d is a type of floating-point numbers.
func (d DType) Float() bool { return d == F32 || d == BF16 || d == F16 }

// Size returns the bytes of one element of a dense tensor; quantized types have none.
func (d DType) Size() int {
	switch d {
	case BF16, F16:
		return 2
	case I8, F8:
		return 1
	}
	return 4
}

func (d DType) String() string {
	switch d {
	case F32:
		return "f32"
	case BF16:
		return "bf16"
	case I32:
		return "i32"
	case Q8:
		return "q8"
	case Q4:
		return "q4"
	case Q4M:
		return "q4m"
	case Q6:
		return "q6"
	case Q8M:
		return "q8m"
	case F16:
		return "f16"
	case I8:
		return "i8"
	case F8:
		return "f8"
	}
	return fmt.Sprintf("dtype(%d)", int32(d))
}

// Tensor is a view of device memory, [Rows, Cols], rows Stride elements apart.
// It has no lifetime: the memory belongs to whoever allocated it. The tensors
// that Device.Load returns have a layout of the device's own; they may only be
// used as the weight of Linear or the table of Embed.
type Tensor struct {
	Addr   Addr
	Rows   int32
	Cols   int32
	Stride int32
	DType  DType
}

// New returns a dense tensor at addr.
func New(addr Addr, rows, cols int, dt DType) Tensor {
	return Tensor{Addr: addr, Rows: int32(rows), Cols: int32(cols), Stride: int32(cols), DType: dt}
}

// Valid reports whether t is a tensor at all; optional operands may be absent.
func (t Tensor) Valid() bool { return t.Addr != 0 }

// Bytes returns the size of a dense tensor of t's shape.
func (t Tensor) Bytes() int64 { return int64(t.Rows) * int64(t.Cols) * int64(t.DType.Size()) }

// Head returns the first n rows.
func (t Tensor) Head(n int) Tensor {
	t.Rows = int32(n)
	return t
}

// Below returns rows [from, from+n) as a view.
func (t Tensor) Below(from, n int) Tensor {
	t.Addr += Addr(from * int(t.Stride) * t.DType.Size())
	return t.Head(n)
}

// Columns returns columns [from, from+n) as a view.
func (t Tensor) Columns(from, n int) Tensor {
	t.Addr += Addr(from * t.DType.Size())
	t.Cols = int32(n)
	return t
}

func (t Tensor) String() string {
	if !t.Valid() {
		return "-"
	}
	return fmt.Sprintf("%s[%d,%d]", t.DType, t.Rows, t.Cols)
}

// Bytes returns the memory of a slice, for Device.Write and Device.Read: devices
// and this package take the machine's own byte order.
func Bytes[T float32 | int32 | uint16 | Sampling | Adjustment | Scoring](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

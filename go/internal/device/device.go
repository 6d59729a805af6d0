// Package device defines what the engine needs of a compute device. The
// implementations are in ref (pure Go, the oracle) and cpu (C kernels).
package device

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// Weight is what Load reads: a shape, the type to store it as, and the function
// that gives a row in one of the forms that the type allows. The function may be
// called from several goroutines at once, for rows in any order, each once.
type Weight struct {
	Rows, Cols int
	DType      ops.DType

	Floats func(dst []float32, r int) // for F32 and BF16, rounded to nearest even
	BF16   func(dst []uint16, r int)  // for BF16: the values' bits; preferred where it is there
	Quant  func(dst QuantRow, r int)  // for the quantized types

	// For F8: the values' bits, of which none is a NaN, and Groups scales, of ops.F8Group
	// values each, which are at least 0 and below ops.F8LargestScale.
	Float8 func(dst []uint8, scales []float32, r int)
}

// Groups returns the number of scales of a row of F8.
func (w Weight) Groups() int { return (w.Cols + ops.F8Group - 1) / ops.F8Group }

// QuantRow is a row of a quantized weight: [cols] codes, a scale and a minimum
// for each group of them. See ops.Quant.
type QuantRow struct {
	Codes          []uint8
	Scales, Minima []float32
}

// MakeQuantRows returns room for n rows of cols columns, one after the other.
func MakeQuantRows(q ops.Quant, n, cols int) QuantRow {
	return QuantRow{Codes: make([]uint8, n*cols), Scales: make([]float32, n*cols/q.Group), Minima: make([]float32, n*cols/q.Group)}
}

// Rows returns rows [from, to) of rows of cols columns.
func (r QuantRow) Rows(q ops.Quant, cols, from, to int) QuantRow {
	groups := cols / q.Group
	return QuantRow{Codes: r.Codes[from*cols : to*cols], Scales: r.Scales[from*groups : to*groups], Minima: r.Minima[from*groups : to*groups]}
}

// Value returns the value of column c.
func (r QuantRow) Value(q ops.Quant, c int) float32 {
	scale := r.Scales[c/q.Group]
	if q.Minima {
		return float32(float32(r.Codes[c])*scale) + r.Minima[c/q.Group]
	}
	return float32(int(r.Codes[c])-q.Zero) * scale
}

// Check reports what of the weight a device can't take.
func (w Weight) Check(maxRows, maxCols int) error {
	q, quantized := w.DType.Quant()
	switch {
	case w.Rows <= 0 || w.Cols <= 0 || w.Rows > maxRows || w.Cols > maxCols:
		return fmt.Errorf("load: weight of %d rows and %d columns", w.Rows, w.Cols)
	case quantized && (w.Cols%32 != 0 || w.Cols%q.Group != 0):
		return fmt.Errorf("load: weight of type %v and %d columns; want a multiple of 32", w.DType, w.Cols)
	case !quantized && !w.DType.Float() && w.DType != ops.F8:
		return fmt.Errorf("load: element type %v; want f32, bf16, f16, f8 or a quantized one", w.DType)
	case (w.Quant != nil) != quantized, (w.Float8 != nil) != (w.DType == ops.F8), w.BF16 != nil && w.DType != ops.BF16,
		w.Quant == nil && w.Float8 == nil && w.Floats == nil && w.BF16 == nil:
		return fmt.Errorf("load: nothing gives the rows of a weight of type %v", w.DType)
	}
	return nil
}

// Device holds memory and runs op lists. Alloc, Load and Close are for one
// goroutine. Alloc may run while a list runs, and so may Write and Read if they
// don't touch memory that the list uses.
type Device interface {
	// Name is what --device calls it: "cpu", "ref".
	Name() string

	// Alloc returns n bytes of zeroed memory, aligned to 64 bytes. It lives
	// until Close.
	Alloc(n int64) (ops.Addr, error)

	// Write copies src to device memory, Read copies device memory to dst.
	Write(dst ops.Addr, src []byte) error
	Read(dst []byte, src ops.Addr) error

	// Load stores a weight in a layout of the device's own.
	Load(w Weight) (ops.Tensor, error)

	// Submit starts a list and returns; the list must stay unchanged until its
	// Wait. At most four lists may be in flight; they run in order.
	Submit(l *ops.List) error

	// Wait blocks until the oldest submitted list has run and returns its error.
	Wait() error

	// Close waits for what is in flight and frees all memory.
	Close() error
}

package engine

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// Source finds a checkpoint's tensors; weights.Checkpoint is one.
type Source interface {
	Tensor(name string) (weights.Tensor, bool)
}

// Maker is a Source that has any tensor that is asked for; weights.Dummy is one.
type Maker interface {
	Make(name string, rows, cols int) weights.Tensor
}

// Releaser is a Source that can do for a while without the memory of rows that
// have been read; weights.Checkpoint is one.
type Releaser interface {
	Release(t weights.Tensor, from, to int)
}

// loader implements model.Loader: it reads a checkpoint's tensors row by row
// into the device's layout.
type loader struct {
	src          Source
	dev          device.Device
	dtype        ops.DType
	quantization Quantization
	hasFloat8    bool            // the device has weights of F8
	used         map[string]bool // the tensors that the model has read
	err          error
	later        atomic.Pointer[error] // what went wrong while the device read rows
}

// Linear implements model.Loader.
func (ld *loader) Linear(cols int, parts ...model.Part) ops.Tensor {
	stack, rows := make([]stacked, 0, len(parts)), 0
	for _, p := range parts {
		part := stacked{first: rows, rows: p.Total()}
		if p.Name != "" {
			t, ok := ld.find(p.Name, p.Total(), cols)
			if !ok {
				return ops.Tensor{}
			}
			part.tensor, part.skip = &t, p.First
		}
		stack = append(stack, part)
		rows += p.Rows
	}
	w, err := ld.dev.Load(ld.weight(stack, rows, cols))
	for _, part := range stack {
		ld.release(part.tensor, 0, part.rows)
	}
	if later := ld.later.Load(); later != nil {
		err = errors.Join(err, *later)
	}
	if err != nil {
		ld.fail(fmt.Errorf("loading %s: %w", parts[0].Name, err))
	}
	return w
}

// weight describes a stack of tensors to a device, in the form that saves most work.
func (ld *loader) weight(stack []stacked, rows, cols int) device.Weight {
	w := device.Weight{Rows: rows, Cols: cols, DType: ld.weightType(stack)}
	if q, ok := w.DType.Quant(); ok {
		w.Quant = func(dst device.QuantRow, r int) { ld.quantRow(dst, q, ld.part(stack, r), r) }
		return w
	}
	if w.DType == ops.F8 {
		w.Float8 = func(dst []uint8, scales []float32, r int) { ld.float8Row(dst, scales, ld.part(stack, r), r) }
		return w
	}
	if w.DType == ops.BF16 && !slices.ContainsFunc(stack, func(part stacked) bool { return part.tensor == nil || !part.tensor.HasBF16() }) {
		w.BF16 = func(dst []uint16, r int) {
			part := ld.part(stack, r)
			bits16(dst, part.tensor.BF16(part.skip+r-part.first))
		}
		return w
	}
	w.Floats = func(dst []float32, r int) {
		if part := ld.part(stack, r); part.tensor != nil {
			part.tensor.Row(dst, part.skip+r-part.first)
		} else {
			clear(dst)
		}
	}
	return w
}

// stacked is one of the tensors that a weight is stacked of.
type stacked struct {
	first  int             // its first row in the weight
	rows   int             // of the tensor
	skip   int             // rows of the tensor that are not in the weight
	tensor *weights.Tensor // nil: rows of zeros
}

// releaseRows is how many rows are read before their memory is given back: what is
// mapped of a file counts as the process's memory.
const releaseRows = 2048

// release gives back the memory of rows [from, to) of a tensor.
func (ld *loader) release(t *weights.Tensor, from, to int) {
	if releaser, ok := ld.src.(Releaser); ok && t != nil {
		releaser.Release(*t, from, to)
	}
}

// part returns the tensor that row r of a stack belongs to.
func (ld *loader) part(stack []stacked, r int) stacked {
	after := sort.Search(len(stack), func(i int) bool { return stack[i].first > r })
	part := stack[after-1]
	if at := part.skip + r - part.first; at > 0 && at%releaseRows == 0 {
		ld.release(part.tensor, at-releaseRows, at)
	}
	return part
}

// failLater remembers what went wrong while the device read rows, which it does
// from several goroutines.
func (ld *loader) failLater(err error) { ld.later.CompareAndSwap(nil, &err) }

// Vector implements model.Loader.
func (ld *loader) Vector(parts ...model.Part) ops.Tensor { return ld.vector(0, parts) }

// Norm implements model.Loader.
func (ld *loader) Norm(part model.Part, offset float32) ops.Tensor {
	return ld.vector(offset, []model.Part{part})
}

// Has implements model.Loader.
func (ld *loader) Has(name string) bool {
	_, ok := ld.src.Tensor(name)
	return ok
}

// vector loads stacked vectors, offset added to each value.
func (ld *loader) vector(offset float32, parts []model.Part) ops.Tensor {
	var values []float32
	for _, p := range parts {
		t, ok := ld.find(p.Name, 1, p.Total())
		if !ok {
			return ops.Tensor{}
		}
		row := make([]float32, p.Total())
		t.Row(row, 0)
		values = append(values, row[p.First:p.First+p.Rows]...)
	}
	for i := range values {
		values[i] += offset
	}
	a := allocator{dev: ld.dev}
	v := a.tensor(1, len(values), ops.F32)
	if a.err == nil {
		a.err = ld.dev.Write(v.Addr, ops.Bytes(values))
	}
	if a.err != nil {
		ld.fail(fmt.Errorf("loading %s: %w", parts[0].Name, a.err))
	}
	return v
}

func (ld *loader) find(name string, rows, cols int) (weights.Tensor, bool) {
	if ld.err != nil {
		return weights.Tensor{}, false
	}
	t, ok := ld.src.Tensor(name)
	if maker, makes := ld.src.(Maker); makes {
		t, ok = maker.Make(name, rows, cols), true
	}
	if !ok {
		ld.fail(fmt.Errorf("the checkpoint has no tensor %s", name))
		return t, false
	}
	if t.Rows() != rows || t.Cols() != cols {
		ld.fail(fmt.Errorf("tensor %s has shape %v, but the configuration asks for %d × %d", name, t.Shape(), rows, cols))
		return t, false
	}
	ld.used[name] = true
	return t, true
}

func (ld *loader) fail(err error) {
	if ld.err == nil {
		ld.err = fmt.Errorf("engine: %w", err)
	}
}

// allocator makes tensors and remembers the first error.
type allocator struct {
	dev device.Device
	err error
}

func (a *allocator) tensor(rows, cols int, dt ops.DType) ops.Tensor {
	if a.err != nil {
		return ops.Tensor{}
	}
	t := ops.New(0, rows, cols, dt)
	t.Addr, a.err = a.dev.Alloc(t.Bytes())
	if a.err != nil {
		a.err = fmt.Errorf("engine: allocating %v: %w", ops.New(1, rows, cols, dt), a.err)
	}
	return t
}

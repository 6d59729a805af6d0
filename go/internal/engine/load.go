package engine

import (
	"fmt"
	"sort"

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

// loader implements model.Loader: it reads a checkpoint's tensors row by row
// into the device's layout.
type loader struct {
	src   Source
	dev   device.Device
	dtype ops.DType
	used  map[string]bool // the tensors that the model has read
	err   error
}

// Linear implements model.Loader.
func (ld *loader) Linear(cols int, parts ...model.Part) ops.Tensor {
	stack, rows := make([]stacked, 0, len(parts)), 0
	for _, p := range parts {
		part := stacked{first: rows}
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
	w, err := ld.dev.Load(rows, cols, ld.dtype, func(dst []float32, r int) { fillRow(stack, dst, r) })
	if err != nil {
		ld.fail(fmt.Errorf("loading %s: %w", parts[0].Name, err))
	}
	return w
}

// stacked is one of the tensors that a weight is stacked of.
type stacked struct {
	first  int             // its first row in the weight
	skip   int             // rows of the tensor that are not in the weight
	tensor *weights.Tensor // nil: rows of zeros
}

func fillRow(stack []stacked, dst []float32, r int) {
	after := sort.Search(len(stack), func(i int) bool { return stack[i].first > r })
	if part := stack[after-1]; part.tensor != nil {
		part.tensor.Row(dst, part.skip+r-part.first)
	} else {
		clear(dst)
	}
}

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

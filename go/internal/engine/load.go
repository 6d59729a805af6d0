package engine

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// Source finds a checkpoint's tensors; weights.Checkpoint is one.
type Source interface {
	Tensor(name string) (weights.Tensor, bool)
}

// loader implements model.Loader: it reads a checkpoint's tensors row by row
// into the device's layout.
type loader struct {
	src   Source
	dev   device.Device
	dtype ops.DType
	err   error
}

// Linear implements model.Loader.
func (ld *loader) Linear(cols int, parts ...model.Part) ops.Tensor {
	var tensors []weights.Tensor
	rows := 0
	for _, p := range parts {
		t, ok := ld.find(p.Name, p.Rows, cols)
		if !ok {
			return ops.Tensor{}
		}
		tensors = append(tensors, t)
		rows += p.Rows
	}
	fill := func(dst []float32, r int) {
		i := 0
		for r >= tensors[i].Rows() {
			r -= tensors[i].Rows()
			i++
		}
		tensors[i].Row(dst, r)
	}
	w, err := ld.dev.Load(rows, cols, ld.dtype, fill)
	if err != nil {
		ld.fail(fmt.Errorf("loading %s: %w", parts[0].Name, err))
	}
	return w
}

// Vector implements model.Loader.
func (ld *loader) Vector(parts ...model.Part) ops.Tensor {
	var values []float32
	for _, p := range parts {
		t, ok := ld.find(p.Name, 1, p.Rows)
		if !ok {
			return ops.Tensor{}
		}
		row := make([]float32, p.Rows)
		t.Row(row, 0)
		values = append(values, row...)
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
	if !ok {
		ld.fail(fmt.Errorf("the checkpoint has no tensor %s", name))
		return t, false
	}
	if t.Rows() != rows || t.Cols() != cols {
		ld.fail(fmt.Errorf("tensor %s has shape %v, but the configuration asks for %d × %d", name, t.Shape(), rows, cols))
		return t, false
	}
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

package cpu

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cpu"
)

// Load packs a weight into panels of 16 rows, several panels at a time in
// parallel. See device.Device and kernels/cpu/pack.c.
func (d *Device) Load(w device.Weight) (ops.Tensor, error) {
	if err := w.Check(math.MaxInt32-kernels.Panel, math.MaxInt32-1); err != nil {
		return ops.Tensor{}, fmt.Errorf("cpu: %w", err)
	}
	if w.DType == ops.F8 {
		return ops.Tensor{}, fmt.Errorf("cpu: load: element type %v is for GPUs", w.DType)
	}
	b, err := d.mem.alloc(kernels.PackedBytes(w.Rows, w.Cols, int(w.DType)))
	if err != nil {
		return ops.Tensor{}, err
	}
	p := packer{to: b, w: w, panels: (w.Rows + kernels.Panel - 1) / kernels.Panel}
	var wg sync.WaitGroup
	for range min(d.threads, p.panels) {
		wg.Go(func() { p.run(p.panelPacker()) })
	}
	wg.Wait()
	if p.err != nil {
		return ops.Tensor{}, fmt.Errorf("cpu: load: %w", p.err)
	}
	return ops.New(b.addr(), w.Rows, w.Cols, w.DType), nil
}

// packer packs one weight; several goroutines run it.
type packer struct {
	to     block
	w      device.Weight
	panels int
	next   atomic.Int64
	failed sync.Once
	err    error
}

// run packs panels until none is left. pack packs one panel: n rows from `first` on.
func (p *packer) run(pack func(panel, first, n int) error) {
	for {
		panel := int(p.next.Add(1)) - 1
		if panel >= p.panels {
			return
		}
		first := panel * kernels.Panel
		if err := pack(panel, first, min(kernels.Panel, p.w.Rows-first)); err != nil {
			p.failed.Do(func() { p.err = err })
			return
		}
	}
}

// panelPacker returns the function that packs a panel in the form that the weight
// gives, with a buffer of its own.
func (p *packer) panelPacker() func(panel, first, n int) error {
	w, cols := p.w, p.w.Cols
	if q, ok := w.DType.Quant(); ok {
		buf := device.MakeQuantRows(q, kernels.Panel, cols)
		return func(panel, first, n int) error {
			for i := range n {
				w.Quant(buf.Rows(q, cols, i, i+1), first+i)
			}
			rows := buf.Rows(q, cols, 0, n)
			return kernels.PackQuant(p.to.p, rows.Codes, rows.Scales, rows.Minima, cols, int(w.DType), panel)
		}
	}
	if w.BF16 != nil {
		return rowPacker(p, w.BF16)
	}
	return rowPacker(p, w.Floats)
}

func rowPacker[T float32 | uint16](p *packer, fill func(dst []T, r int)) func(panel, first, n int) error {
	cols := p.w.Cols
	buf := make([]T, kernels.Panel*cols)
	return func(panel, first, n int) error {
		for i := range n {
			fill(buf[i*cols:(i+1)*cols:(i+1)*cols], first+i)
		}
		return kernels.PackPanel(p.to.p, buf[:n*cols], cols, int(p.w.DType), panel)
	}
}

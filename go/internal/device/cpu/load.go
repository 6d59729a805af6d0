package cpu

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cpu"
)

// Load packs a weight into panels of 16 rows, several panels at a time in
// parallel. See device.Device and kernels/cpu/pack.c.
func (d *Device) Load(rows, cols int, dt ops.DType, fill func(dst []float32, r int)) (ops.Tensor, error) {
	if rows <= 0 || cols <= 0 || rows > math.MaxInt32-kernels.Panel || cols >= math.MaxInt32 {
		return ops.Tensor{}, fmt.Errorf("cpu: load: weight of %d rows and %d columns", rows, cols)
	}
	if dt != ops.F32 && dt != ops.BF16 {
		return ops.Tensor{}, fmt.Errorf("cpu: load: element type %v; want f32 or bf16", dt)
	}
	b, err := d.mem.alloc(kernels.PackedBytes(rows, cols, int(dt)))
	if err != nil {
		return ops.Tensor{}, err
	}
	panels := (rows + kernels.Panel - 1) / kernels.Panel
	p := packer{to: b, rows: rows, cols: cols, dt: dt, panels: panels, fill: fill}
	var wg sync.WaitGroup
	for range min(d.threads, panels) {
		wg.Go(p.run)
	}
	wg.Wait()
	if p.err != nil {
		return ops.Tensor{}, fmt.Errorf("cpu: load: %w", p.err)
	}
	return ops.New(b.addr(), rows, cols, dt), nil
}

// packer packs one weight; several goroutines run it.
type packer struct {
	to         block
	rows, cols int
	dt         ops.DType
	panels     int
	fill       func(dst []float32, r int)
	next       atomic.Int64
	failed     sync.Once
	err        error
}

func (p *packer) run() {
	buf := make([]float32, kernels.Panel*p.cols)
	for {
		panel := int(p.next.Add(1)) - 1
		if panel >= p.panels {
			return
		}
		first := panel * kernels.Panel
		n := min(kernels.Panel, p.rows-first)
		for i := range n {
			p.fill(buf[i*p.cols:(i+1)*p.cols:(i+1)*p.cols], first+i)
		}
		if err := kernels.PackPanel(p.to.p, buf[:n*p.cols], p.cols, int(p.dt), panel); err != nil {
			p.failed.Do(func() { p.err = err })
			return
		}
	}
}

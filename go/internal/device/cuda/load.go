//go:build cuda || amd64

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// partBytes is how much of a weight is packed on the host before it is copied.
const partBytes = 32 << 20

// Load packs a weight into panels of 16 rows, a part at a time: several panels in
// parallel, then one copy. See device.Device and kernels/cuda/weight.h.
func (d *Device) Load(w device.Weight) (ops.Tensor, error) {
	if err := w.Check(math.MaxInt32-kernels.Panel, math.MaxInt32-32); err != nil {
		return ops.Tensor{}, fmt.Errorf("%s: %w", d.name, err)
	}
	b, err := d.mem.alloc(kernels.PackedBytes(w.Rows, w.Cols, int(w.DType)))
	if err != nil {
		return ops.Tensor{}, fmt.Errorf("%s: load: %w", d.name, err)
	}
	panels, size := (w.Rows+kernels.Panel-1)/kernels.Panel, int(kernels.PanelBytes(w.Cols, int(w.DType)))
	each := min(panels, max(1, partBytes/size))
	buf := make([]byte, each*size)
	for first := 0; first < panels; first += each {
		n := min(each, panels-first)
		if err := pack(buf[:n*size], w, first, n); err != nil {
			return ops.Tensor{}, fmt.Errorf("%s: load: %w", d.name, err)
		}
		if err := d.staging.write(b.p+uintptr(first)*uintptr(size), buf[:n*size]); err != nil {
			return ops.Tensor{}, fmt.Errorf("%s: load: %w", d.name, err)
		}
	}
	return ops.New(ops.Addr(b.p), w.Rows, w.Cols, w.DType), nil
}

// pack packs panels [first, first+n) of a weight.
func pack(to []byte, w device.Weight, first, n int) error {
	size := len(to) / n
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			packPanel := panelPacker(w)
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				row := (first + int(i)) * kernels.Panel
				if err := packPanel(to[int(i)*size:][:size], row, min(kernels.Panel, w.Rows-row)); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// panelPacker returns the function that packs n rows from `row` on, in the form that
// the weight gives, with a buffer of its own.
func panelPacker(w device.Weight) func(panel []byte, row, n int) error {
	if q, ok := w.DType.Quant(); ok {
		buf := device.MakeQuantRows(q, kernels.Panel, w.Cols)
		return func(panel []byte, row, n int) error {
			for i := range n {
				w.Quant(buf.Rows(q, w.Cols, i, i+1), row+i)
			}
			rows := buf.Rows(q, w.Cols, 0, n)
			return kernels.PackQuant(panel, rows.Codes, rows.Scales, rows.Minima, w.Cols, int(w.DType))
		}
	}
	if w.Float8 != nil {
		codes, scales, groups := make([]byte, kernels.Panel*w.Cols), make([]float32, kernels.Panel*w.Groups()), w.Groups()
		return func(panel []byte, row, n int) error {
			for i := range n {
				w.Float8(codes[i*w.Cols:][:w.Cols], scales[i*groups:][:groups], row+i)
			}
			return kernels.PackFloat8(panel, codes[:n*w.Cols], scales[:n*groups], w.Cols)
		}
	}
	if w.BF16 != nil {
		return rowPacker(w, w.BF16)
	}
	return rowPacker(w, w.Floats)
}

func rowPacker[T float32 | uint16](w device.Weight, fill func(dst []T, r int)) func(panel []byte, row, n int) error {
	buf := make([]T, kernels.Panel*w.Cols)
	return func(panel []byte, row, n int) error {
		for i := range n {
			fill(buf[i*w.Cols:(i+1)*w.Cols:(i+1)*w.Cols], row+i)
		}
		return kernels.PackPanel(panel, buf[:n*w.Cols], w.Cols, int(w.DType))
	}
}

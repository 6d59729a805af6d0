//go:build !cuda && amd64

package cuda

import (
	"fmt"

	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// emulated is a GPU for tests: submissions run at once, on the CPU.
type emulated struct {
	order kernels.Order
}

// NewEmulated returns the device cuda-emu: the CUDA kernels on the CPU, which is
// slow. The order in which threads run must not show.
func NewEmulated(order kernels.Order) (*Device, error) {
	if err := kernels.Supported(); err != nil {
		return nil, fmt.Errorf("cuda-emu: %w", err)
	}
	return newDevice("cuda-emu", &emulated{order: order})
}

func (e *emulated) alloc(n int64) (uintptr, error) { return kernels.Alloc(n) }

func (e *emulated) free(p uintptr) error {
	kernels.Free(p)
	return nil
}

func (e *emulated) write(dst uintptr, src []byte) error {
	copy(kernels.Bytes(dst, len(src)), src)
	return nil
}

func (e *emulated) read(dst []byte, src uintptr) error {
	copy(dst, kernels.Bytes(src, len(dst)))
	return nil
}

func (e *emulated) submit(f func(stream uintptr) error) error {
	return kernels.Emulate(e.order, func() error { return f(0) })
}

func (e *emulated) finish() error { return nil }

func (e *emulated) close() error { return nil }

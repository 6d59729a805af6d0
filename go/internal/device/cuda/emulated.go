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
	return New("cuda-emu", &emulated{order: order})
}

// Alloc implements Machine.
func (e *emulated) Alloc(n int64) (uintptr, error) { return kernels.Alloc(n) }

// Free implements Machine.
func (e *emulated) Free(p uintptr) error {
	kernels.Free(p)
	return nil
}

// FreeMemory implements Machine: what a small GPU has.
func (e *emulated) FreeMemory() (int64, error) { return 1 << 30, nil }

// Write implements Machine.
func (e *emulated) Write(dst uintptr, src []byte) error {
	copy(kernels.Bytes(dst, len(src)), src)
	return nil
}

// Read implements Machine.
func (e *emulated) Read(dst []byte, src uintptr) error {
	copy(dst, kernels.Bytes(src, len(dst)))
	return nil
}

// Submit implements Machine.
func (e *emulated) Submit(f func(stream uintptr) error) error {
	return kernels.Emulate(e.order, func() error { return f(0) })
}

// Capture implements Machine.
func (e *emulated) Capture(f func(stream uintptr) error) error { return f(0) }

// Finish implements Machine.
func (e *emulated) Finish() error { return nil }

// Close implements Machine.
func (e *emulated) Close() error { return nil }

//go:build !cuda && amd64

package cuda

import (
	"cmp"
	"errors"
	"fmt"

	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// Emulation says how a GPU is emulated.
type Emulation struct {
	Order  kernels.Order // in which threads run, which must not show
	Memory int64         // bytes; 0: 1 GiB
}

// emulated is a GPU for tests: submissions run at once, on the CPU.
type emulated struct {
	order kernels.Order
	free  int64
	sizes map[uintptr]int64 // of the allocations

	copies []transfer // begun and not ended
	begun  int        // copies
	marks  [Marks]int // copies that were begun before each
}

// transfer is a copy to the GPU.
type transfer struct {
	dst uintptr
	src []byte
}

// NewEmulated returns the device cuda-emu: the CUDA kernels on the CPU, which is slow.
func NewEmulated(e Emulation) (*Device, error) {
	if err := kernels.Supported(); err != nil {
		return nil, fmt.Errorf("cuda-emu: %w", err)
	}
	return New("cuda-emu", &emulated{order: e.Order, free: cmp.Or(e.Memory, 1<<30), sizes: map[uintptr]int64{}})
}

// EmulateFlashInfer lets attention be what stands in for FlashInfer's library. See UseAttention.
func (d *Device) EmulateFlashInfer() { d.UseAttention(kernels.EmulatedAttention()) }

// NewEmulatedRanks returns n devices that hold a model together.
func NewEmulatedRanks(n int, e Emulation) ([]*Device, error) {
	meeting := kernels.NewMeeting(n)
	var devs []*Device
	for i := range n {
		d, err := NewEmulated(e)
		if err != nil {
			return nil, err
		}
		x, end := meeting.Exchange(i)
		d.UseExchange(Exchange{Exchange: x, Abort: meeting.Abort, Aborted: meeting.Aborted, Close: end})
		devs = append(devs, d)
	}
	return devs, nil
}

// Alloc implements Machine.
func (e *emulated) Alloc(n int64) (uintptr, error) {
	if n > e.free {
		return 0, errors.New("out of memory")
	}
	p, err := kernels.Alloc(n)
	if err == nil {
		e.free, e.sizes[p] = e.free-n, n
	}
	return p, err
}

// Free implements Machine.
func (e *emulated) Free(p uintptr) error {
	e.free += e.sizes[p]
	delete(e.sizes, p)
	kernels.Free(p)
	return nil
}

// FreeMemory implements Machine.
func (e *emulated) FreeMemory() (int64, error) { return e.free, nil }

// Pin implements Machine.
func (e *emulated) Pin(n int) ([]byte, error) { return make([]byte, n), nil }

// Copy implements Machine. The copy takes place as late as it may.
func (e *emulated) Copy(dst uintptr, src []byte) error {
	e.copies, e.begun = append(e.copies, transfer{dst, src}), e.begun+1
	return nil
}

// Mark implements Machine.
func (e *emulated) Mark(i int) error {
	e.marks[i] = e.begun
	return nil
}

// Pass implements Machine.
func (e *emulated) Pass(i int) error {
	e.finishCopies(len(e.copies) - (e.begun - e.marks[i]))
	return nil
}

// finishCopies carries out the oldest n copies.
func (e *emulated) finishCopies(n int) {
	for _, c := range e.copies[:max(n, 0)] {
		copy(kernels.Bytes(c.dst, len(c.src)), c.src)
	}
	e.copies = e.copies[:copy(e.copies, e.copies[max(n, 0):])]
}

// Read implements Machine.
func (e *emulated) Read(dst []byte, src uintptr) error {
	e.finishCopies(len(e.copies))
	copy(dst, kernels.Bytes(src, len(dst)))
	return nil
}

// Submit implements Machine.
func (e *emulated) Submit(f func(stream uintptr) error) error {
	e.finishCopies(len(e.copies))
	return kernels.Emulate(e.order, func() error { return f(0) })
}

// Capture implements Machine.
func (e *emulated) Capture(f func(stream uintptr) error) error { return f(0) }

// Finish implements Machine.
func (e *emulated) Finish() error { return nil }

// Close implements Machine.
func (e *emulated) Close() error { return nil }

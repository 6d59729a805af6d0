//go:build cuda || amd64

// Package cuda is the CUDA device: it puts op lists on a stream of a GPU, one call
// into C a list.
//
// What it needs of a GPU is the interface machine. Without the build tag cuda there
// is one that emulates a GPU on the CPU, for tests; with it, the real one.
package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/kernels/cpu"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// maxInFlight is the number of lists that may be submitted and not waited for.
const maxInFlight = 4

// statusBytes is the distance of the status words of lists in flight.
const statusBytes = 64

// machine is a GPU: memory, and one stream on which lists run in order.
type machine interface {
	// alloc returns n bytes of zeroed memory, aligned to 64 bytes; free gives it back.
	alloc(n int64) (uintptr, error)
	free(p uintptr) error

	// write and read copy to and from memory that no list in flight uses.
	write(dst uintptr, src []byte) error
	read(dst []byte, src uintptr) error

	// submit lets f put work on the stream.
	submit(f func(stream uintptr) error) error

	// finish waits for the oldest submission that it has not waited for.
	finish() error

	close() error
}

// Device implements device.Device.
type Device struct {
	name     string
	m        machine
	mem      memory
	scratch  block
	statuses block
	flying   []flight // oldest first
	next     int      // the status word of the next list
	closed   bool
}

// flight is a list that was submitted.
type flight struct {
	list   *ops.List
	status uintptr
	err    error // of what could not be submitted; the operations before it were
}

func newDevice(name string, m machine) (*Device, error) {
	d := &Device{name: name, m: m, mem: memory{m: m}}
	var err error
	if d.statuses, err = d.mem.alloc(maxInFlight * statusBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), m.close())
	}
	return d, nil
}

// Name returns "cuda" or "cuda-emu".
func (d *Device) Name() string { return d.name }

// Submit puts a list on the stream. See device.Device.
func (d *Device) Submit(l *ops.List) error {
	if d.closed {
		return fmt.Errorf("%s: submit: the device is closed", d.name)
	}
	if len(d.flying) == maxInFlight {
		return fmt.Errorf("%s: submit: %d lists are in flight; wait for one first", d.name, maxInFlight)
	}
	if err := l.Err(); err != nil {
		return fmt.Errorf("%s: submit: %w", d.name, err)
	}
	f := flight{list: l, status: d.statuses.p + uintptr(d.next*statusBytes)}
	f.err = d.submit(f)
	var short *kernels.ErrScratch
	if errors.As(f.err, &short) {
		if f.err = d.growScratch(short.Needed); f.err == nil {
			f.err = d.submit(f)
		}
	}
	d.flying = append(d.flying, f)
	d.next = (d.next + 1) % maxInFlight
	return nil
}

func (d *Device) submit(f flight) error {
	return d.m.submit(func(stream uintptr) error {
		run := kernels.NewRun(stream, d.scratch.p, d.scratch.n, f.status)
		return run.Submit(unsafe.Pointer(unsafe.SliceData(f.list.Ops)), len(f.list.Ops))
	})
}

// growScratch makes the scratch larger. Lists in flight keep the old one, which is
// given back when the device is closed.
func (d *Device) growScratch(n int64) error {
	b, err := d.mem.alloc(n + n/2)
	if err != nil {
		return fmt.Errorf("scratch: %w", err)
	}
	d.scratch = b
	return nil
}

// Wait blocks until the oldest submitted list has run. Its error names the
// operation; the operations before it have run, those after it have not.
func (d *Device) Wait() error {
	if len(d.flying) == 0 {
		return fmt.Errorf("%s: wait: no list was submitted", d.name)
	}
	f := d.flying[0]
	d.flying = d.flying[:copy(d.flying, d.flying[1:])]
	if err := d.m.finish(); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if len(f.list.Ops) == 0 {
		return nil
	}
	var word [1]int32
	if err := d.m.read(ops.Bytes(word[:]), f.status); err != nil {
		return fmt.Errorf("%s: reading the status: %w", d.name, err)
	}
	// What the kernels found comes before what could not be submitted behind it.
	err := kernels.StatusErr(word[0])
	if err == nil {
		err = f.err
	}
	if err == nil {
		return nil
	}
	var opErr *cpu.OpError
	if errors.As(err, &opErr) && opErr.Index >= 0 && opErr.Index < len(f.list.Ops) {
		return fmt.Errorf("%s: operation %d, %v: %w", d.name, opErr.Index, f.list.Ops[opErr.Index], opErr.Err)
	}
	return fmt.Errorf("%s: %w", d.name, err)
}

// Alloc returns n bytes of zeroed memory, aligned to 64 bytes.
func (d *Device) Alloc(n int64) (ops.Addr, error) {
	b, err := d.mem.alloc(n)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", d.name, err)
	}
	return ops.Addr(b.p), nil
}

// Write copies src to device memory.
func (d *Device) Write(dst ops.Addr, src []byte) error {
	if err := d.mem.check(dst, len(src)); err != nil {
		return fmt.Errorf("%s: write: %w", d.name, err)
	}
	return d.m.write(uintptr(dst), src)
}

// Read copies device memory to dst.
func (d *Device) Read(dst []byte, src ops.Addr) error {
	if err := d.mem.check(src, len(dst)); err != nil {
		return fmt.Errorf("%s: read: %w", d.name, err)
	}
	return d.m.read(dst, uintptr(src))
}

// Close waits for what is in flight and frees all memory.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	for range d.flying {
		errs = append(errs, d.m.finish())
	}
	errs = append(errs, d.mem.free(), d.m.close())
	return errors.Join(errs...)
}

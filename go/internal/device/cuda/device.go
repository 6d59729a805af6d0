//go:build cuda || amd64

// Package cuda is the CUDA device: it puts op lists on a stream of a GPU, one call
// into C a list.
//
// What it needs of a GPU is the interface Machine. Without the build tag cuda there
// is one here that emulates a GPU on the CPU, for tests; the real one is in
// cmd/minisgl-cuda.
package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/kernels/cpu"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// MaxInFlight is the number of lists that may be submitted and not waited for.
const MaxInFlight = 4

// statusBytes is the distance of the status words of lists in flight.
const statusBytes = 64

// Machine is a GPU: memory, a stream on which lists run in order, and one for copies.
type Machine interface {
	// Alloc returns n bytes of zeroed memory, aligned to 64 bytes; Free gives it back.
	Alloc(n int64) (uintptr, error)
	Free(p uintptr) error

	// FreeMemory returns how many bytes Alloc could give.
	FreeMemory() (int64, error)

	// Copies write memory that no list in flight uses.
	Copies

	// Read copies from memory that no list in flight uses.
	Read(dst []byte, src uintptr) error

	// Submit lets f put work on the stream. An error of f that is a
	// *kernels.ErrScratch means that it has put nothing there.
	Submit(f func(stream uintptr) error) error

	// Capture lets f capture work of the stream; nothing is to run.
	Capture(f func(stream uintptr) error) error

	// Finish waits for the oldest submission that it has not waited for.
	Finish() error

	// Close gives up the GPU; all memory has been given back.
	Close() error
}

// Device implements device.Device.
type Device struct {
	name     string
	m        Machine
	mem      memory
	staging  staging
	scratch  block
	statuses block
	flying   []flight // oldest first
	next     int      // the status word of the next list
	graphs   graphs
	exchange Exchange
	attend   kernels.Attention
	closed   bool
}

// flight is a list that was submitted.
type flight struct {
	list   *ops.List
	status uintptr
	err    error  // of what could not be submitted; the operations before it were
	graph  *graph // nil: the list was not launched as one
}

// New makes a device of a machine, which becomes the device's.
func New(name string, m Machine) (*Device, error) {
	d := &Device{name: name, m: m, mem: memory{m: m}, staging: staging{c: m, size: stagingPart}}
	var err error
	if d.statuses, err = d.mem.alloc(MaxInFlight * statusBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), m.Close())
	}
	return d, nil
}

// Name returns "cuda" or "cuda-emu".
func (d *Device) Name() string { return d.name }

// UseAttention lets attention be FlashInfer's. No list may be in flight, and none a graph.
func (d *Device) UseAttention(a kernels.Attention) { d.attend = a }

// Submit puts a list on the stream. See device.Device.
func (d *Device) Submit(l *ops.List) error {
	if d.closed {
		return fmt.Errorf("%s: submit: the device is closed", d.name)
	}
	if len(d.flying) == MaxInFlight {
		return fmt.Errorf("%s: submit: %d lists are in flight; wait for one first", d.name, MaxInFlight)
	}
	if err := l.Err(); err != nil {
		return fmt.Errorf("%s: submit: %w", d.name, err)
	}
	if g := d.launchGraph(l); g != nil {
		d.flying = append(d.flying, flight{list: l, status: g.status, graph: g})
		return nil
	}
	f := flight{list: l, status: d.statuses.p + uintptr(d.next*statusBytes)}
	f.err = d.submit(f)
	var short *kernels.ErrScratch
	if errors.As(f.err, &short) {
		if f.err = d.growScratch(short.Needed); f.err == nil {
			f.err = d.submit(f)
		}
	}
	d.fail(f.err)
	d.flying = append(d.flying, f)
	d.next = (d.next + 1) % MaxInFlight
	return nil
}

func (d *Device) submit(f flight) error {
	return d.m.Submit(func(stream uintptr) error {
		run := kernels.NewRun(stream, d.scratch.p, d.scratch.n, f.status, d.exchange.Exchange, d.attend)
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
	if err := d.m.Finish(); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if f.graph != nil {
		f.graph.flying = false
	}
	if len(f.list.Ops) == 0 {
		return nil
	}
	var word [1]int32
	if err := d.m.Read(ops.Bytes(word[:]), f.status); err != nil {
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

// FreeMemory returns how many bytes of the GPU's memory are free.
func (d *Device) FreeMemory() (int64, error) {
	n, err := d.m.FreeMemory()
	if err != nil {
		return 0, fmt.Errorf("%s: free memory: %w", d.name, err)
	}
	return n, nil
}

// Write copies src to device memory, by way of pinned memory: it waits for no copy but
// when that is full.
func (d *Device) Write(dst ops.Addr, src []byte) error {
	if err := d.mem.check(dst, len(src)); err != nil {
		return fmt.Errorf("%s: write: %w", d.name, err)
	}
	if err := d.staging.write(uintptr(dst), src); err != nil {
		return fmt.Errorf("%s: write: %w", d.name, err)
	}
	return nil
}

// Read copies device memory to dst.
func (d *Device) Read(dst []byte, src ops.Addr) error {
	if err := d.mem.check(src, len(dst)); err != nil {
		return fmt.Errorf("%s: read: %w", d.name, err)
	}
	return d.m.Read(dst, uintptr(src))
}

// Close waits for what is in flight and frees all memory.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	for range d.flying {
		errs = append(errs, d.m.Finish())
	}
	d.graphs.free()
	if d.Exchanges() {
		d.exchange.Close()
	}
	errs = append(errs, d.mem.free(), d.m.Close())
	return errors.Join(errs...)
}

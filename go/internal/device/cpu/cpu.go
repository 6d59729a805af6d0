// Package cpu is the CPU device: it hands op lists to the C kernels, one call a
// list.
//
// A goroutine of the device runs the lists in order, so Submit returns at once
// and the caller can plan the next batch meanwhile. A list crosses into C as it
// is: ops.Op and msgl_op have one layout, and TestLayout holds them together.
package cpu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cpu"
)

// maxInFlight is the number of lists that may be submitted and not waited for.
const maxInFlight = 4

// Device implements device.Device.
type Device struct {
	pool     *kernels.Pool
	threads  int
	mem      memory
	lists    chan *ops.List
	results  chan error
	inFlight atomic.Int32
	runner   sync.WaitGroup
	closed   bool
	timed    atomic.Pointer[func(*ops.List, []int64)]
}

// New starts a device with that many threads; threads <= 0 means one for each
// physical core that the process may use. The kernels' instruction set is the
// best of the machine unless the environment variable MINISGL_CPU_ISA names one.
func New(threads int) (*Device, error) {
	if threads <= 0 {
		threads = Cores()
	}
	pool, err := kernels.NewPool(threads)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	d := &Device{
		pool:    pool,
		threads: threads,
		lists:   make(chan *ops.List, maxInFlight),
		results: make(chan error, maxInFlight),
	}
	d.runner.Go(d.run)
	return d, nil
}

// Cores is the number of physical cores that the process may use.
func Cores() int { return physicalCores() }

// Name returns "cpu".
func (d *Device) Name() string { return "cpu" }

// ISA returns the instruction set of the kernels: "amx", "avx512_bf16",
// "avx512", "avx2", on Arm "neon_i8mm", "neon_dot", "portable".
func (d *Device) ISA() string {
	name, err := kernels.ISA()
	if err != nil {
		return "unknown" // New has checked it
	}
	return name
}

// Probe measures the machine; no list may be in flight. See kernels.Pool.
func (d *Device) Probe() (bytesPerSecond, flopsPerSecond float64, err error) { return d.pool.Probe() }

// Threads returns the number of threads that run the kernels.
func (d *Device) Threads() int { return d.threads }

func (d *Device) run() {
	for l := range d.lists {
		d.results <- d.runList(l)
	}
}

func (d *Device) runList(l *ops.List) error {
	var ns []int64
	timed := d.timed.Load()
	if timed != nil {
		ns = make([]int64, len(l.Ops))
	}
	err := d.pool.Submit(unsafe.Pointer(unsafe.SliceData(l.Ops)), len(l.Ops), ns)
	if err == nil && timed != nil {
		(*timed)(l, ns)
	}
	if err == nil {
		return nil
	}
	var opErr *kernels.OpError
	if errors.As(err, &opErr) && opErr.Index >= 0 && opErr.Index < len(l.Ops) {
		return fmt.Errorf("cpu: operation %d, %v: %w", opErr.Index, l.Ops[opErr.Index], opErr.Err)
	}
	return fmt.Errorf("cpu: %w", err)
}

// Submit starts a list. See device.Device.
func (d *Device) Submit(l *ops.List) error {
	if d.closed {
		return errors.New("cpu: submit: the device is closed")
	}
	if d.inFlight.Load() == maxInFlight {
		return fmt.Errorf("cpu: submit: %d lists are in flight; wait for one first", maxInFlight)
	}
	if err := l.Err(); err != nil {
		return fmt.Errorf("cpu: submit: %w", err)
	}
	d.inFlight.Add(1)
	d.lists <- l
	return nil
}

// Time makes the device call f after each list with the nanoseconds that each of
// its operations took; nil ends that. f runs before the list's Wait returns.
func (d *Device) Time(f func(l *ops.List, ns []int64)) {
	if f == nil {
		d.timed.Store(nil)
	} else {
		d.timed.Store(&f)
	}
}

// Wait blocks until the oldest submitted list has run. Its error names the
// operation; the operations before it have run, those after it have not.
func (d *Device) Wait() error {
	if d.inFlight.Load() == 0 {
		return errors.New("cpu: wait: no list was submitted")
	}
	err := <-d.results
	d.inFlight.Add(-1)
	return err
}

// Close waits for what is in flight, stops the threads and frees all memory.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.lists)
	d.runner.Wait()
	d.pool.Close()
	d.mem.free()
	return nil
}

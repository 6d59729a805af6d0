//go:build cuda

// Package machine is a real GPU for device/cuda. A process that it is in ends where there
// is no driver: gorgonia.org/cu sees to that.
package machine

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/cuda"
	"github.com/minisgl/minisgl/go/internal/flashinfer"
	"github.com/minisgl/minisgl/go/internal/gpu"
	"github.com/minisgl/minisgl/go/internal/nccl"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// machine is a real GPU. Copies go over a stream of their own, so that the inputs of the
// next list are on their way while one runs.
type machine struct {
	device  cu.Device
	context cu.CUContext
	compute cu.Stream
	copies  cu.Stream
	pinned  [][]byte
	marks   [cuda.Marks]cu.Event       // behind copies
	copied  cu.Event                   // behind the copies that the list submitted last waits for
	done    [cuda.MaxInFlight]cu.Event // behind each list
	started int                        // lists
	ended   int                        // lists that finish has waited for
}

// Open opens the first n GPUs and tells what the last one is. See gpu.Open.
func Open(n, graphRows int) (devs []device.Device, name string, err error) {
	count, err := gpu.Count()
	if err == nil && n > count {
		err = fmt.Errorf("%d ranks need as many GPUs, there are %d", n, count)
	}
	var ranks []*cuda.Device
	for i := 0; err == nil && i < n; i++ {
		var d *cuda.Device
		if d, name, err = openOne(i); err == nil {
			ranks, devs = append(ranks, d), append(devs, d)
			d.UseGraphs(graphRows)
		}
	}
	if err == nil && n > 1 {
		err = connect(ranks)
	}
	if err == nil {
		return devs, name, nil
	}
	for _, d := range ranks {
		err = errors.Join(err, d.Close())
	}
	return nil, "", err
}

// FlashInfer lets attention be FlashInfer's. See gpu.FlashInfer.
func FlashInfer(devs []device.Device) error {
	attend, err := flashinfer.Open()
	if err != nil {
		return err
	}
	for _, d := range devs {
		d.(*cuda.Device).UseAttention(kernels.Attention(attend))
	}
	return nil
}

// connect lets GPUs exchange what they compute.
func connect(ranks []*cuda.Device) error {
	group, err := nccl.Open(len(ranks))
	if err != nil {
		return err
	}
	for i, d := range ranks {
		x := cuda.Exchange{Abort: group.Abort, Aborted: group.Aborted, Close: group.Close}
		x.Gather, x.Rank = group.Rank(i)
		x.Ranks = len(ranks)
		d.UseExchange(x)
	}
	return nil
}

// openOne opens a GPU by its number, from 0, and tells what it is.
func openOne(number int) (*cuda.Device, string, error) {
	dev, err := cu.GetDevice(number)
	if err != nil {
		return nil, "", fmt.Errorf("cuda: GPU %d: %w", number, err)
	}
	name, err := dev.Name()
	if err != nil {
		return nil, "", fmt.Errorf("cuda: GPU %d: %w", number, err)
	}
	g := &machine{device: dev}
	if g.context, err = dev.RetainPrimaryCtx(); err != nil {
		return nil, "", fmt.Errorf("cuda: GPU %d, %s: %w", number, name, err)
	}
	if err := g.on(g.start); err != nil {
		return nil, "", errors.Join(fmt.Errorf("cuda: GPU %d, %s: %w", number, name, err), dev.ReleasePrimaryCtx())
	}
	d, err := cuda.New("cuda", g)
	return d, name, err
}

func (g *machine) start() (err error) {
	if g.compute, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return err
	}
	if g.copies, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return err
	}
	for _, event := range g.events() {
		if *event, err = cu.MakeEvent(cu.DisableTiming); err != nil {
			return err
		}
	}
	return nil
}

// events returns all of the machine's events.
func (g *machine) events() []*cu.Event {
	all := []*cu.Event{&g.copied}
	for i := range g.done {
		all = append(all, &g.done[i])
	}
	for i := range g.marks {
		all = append(all, &g.marks[i])
	}
	return all
}

// on runs f on a thread that has the GPU's context.
func (g *machine) on(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(g.context); err != nil {
		return err
	}
	return f()
}

// Alloc implements cuda.Machine.
func (g *machine) Alloc(n int64) (p uintptr, err error) {
	err = g.on(func() error {
		at, err := cu.MemAlloc(max(n, 1))
		if err != nil {
			return err
		}
		p = uintptr(at)
		if err := cu.MemsetD8Async(at, 0, max(n, 1), g.copies); err != nil {
			return errors.Join(err, cu.MemFree(at))
		}
		return nil
	})
	return p, err
}

// Free implements cuda.Machine.
func (g *machine) Free(p uintptr) error {
	return g.on(func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

// FreeMemory implements cuda.Machine.
func (g *machine) FreeMemory() (free int64, err error) {
	err = g.on(func() error {
		free, _, err = cu.MemInfo()
		return err
	})
	return free, err
}

// Pin implements cuda.Machine.
func (g *machine) Pin(n int) (memory []byte, err error) {
	err = g.on(func() error {
		memory, err = pin(n)
		return err
	})
	if err == nil {
		g.pinned = append(g.pinned, memory)
	}
	return memory, err
}

// Copy implements cuda.Machine.
func (g *machine) Copy(dst uintptr, src []byte) error {
	return g.on(func() error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(unsafe.SliceData(src)), int64(len(src)), g.copies)
	})
}

// Mark implements cuda.Machine.
func (g *machine) Mark(i int) error {
	return g.on(func() error { return g.marks[i].Record(g.copies) })
}

// Pass implements cuda.Machine.
func (g *machine) Pass(i int) error {
	return g.on(func() error { return g.marks[i].Synchronize() })
}

// Read implements cuda.Machine.
func (g *machine) Read(dst []byte, src uintptr) error {
	if len(dst) == 0 {
		return nil
	}
	return g.on(func() error {
		if err := cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(dst)), cu.DevicePtr(src), int64(len(dst)), g.copies); err != nil {
			return err
		}
		return g.copies.Synchronize()
	})
}

// Submit implements cuda.Machine.
func (g *machine) Submit(f func(stream uintptr) error) error {
	return g.on(func() error {
		if err := errors.Join(g.copied.Record(g.copies), g.compute.Wait(g.copied, 0)); err != nil {
			return err
		}
		// What could not be submitted is f's error; what was has to be waited for.
		err := f(uintptr(unsafe.Pointer(g.compute.C())))
		var short *kernels.ErrScratch
		if errors.As(err, &short) {
			return err // nothing was
		}
		if failed := g.done[g.started%cuda.MaxInFlight].Record(g.compute); failed != nil {
			return errors.Join(err, failed)
		}
		g.started++
		return err
	})
}

// Capture implements cuda.Machine.
func (g *machine) Capture(f func(stream uintptr) error) error {
	return g.on(func() error { return f(uintptr(unsafe.Pointer(g.compute.C()))) })
}

// Finish implements cuda.Machine.
func (g *machine) Finish() error {
	return g.on(func() error {
		if g.started == g.ended {
			return errors.New("nothing was submitted")
		}
		event := g.done[g.ended%cuda.MaxInFlight]
		g.ended++
		return event.Synchronize()
	})
}

// Close implements cuda.Machine.
func (g *machine) Close() error {
	err := g.on(func() error {
		errs := []error{g.compute.Synchronize(), g.copies.Synchronize()}
		for _, event := range g.events() {
			errs = append(errs, cu.DestroyEvent(event))
		}
		for _, memory := range g.pinned {
			errs = append(errs, cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(memory))))
		}
		return errors.Join(append(errs, g.compute.Destroy(), g.copies.Destroy())...)
	})
	return errors.Join(err, g.device.ReleasePrimaryCtx())
}

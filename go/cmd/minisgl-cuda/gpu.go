//go:build cuda

package main

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/cuda"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// machine is a real GPU. Copies go over a stream of their own, so that the inputs of the
// next list are on their way while one runs.
type machine struct {
	device  cu.Device
	context cu.CUContext
	compute cu.Stream
	copies  cu.Stream
	copied  cu.Event                   // behind the last write
	done    [cuda.MaxInFlight]cu.Event // behind each list
	started int                        // lists
	ended   int                        // lists that finish has waited for
}

// open opens a GPU by its number, from 0, and tells what it is. See gpu.Open.
func open(number, graphRows int) (device.Device, string, error) {
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
	if err != nil {
		return nil, "", err
	}
	d.UseGraphs(graphRows)
	return d, name, nil
}

func (g *machine) start() (err error) {
	if g.compute, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return err
	}
	if g.copies, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return err
	}
	if g.copied, err = cu.MakeEvent(cu.DisableTiming); err != nil {
		return err
	}
	for i := range g.done {
		if g.done[i], err = cu.MakeEvent(cu.DisableTiming); err != nil {
			return err
		}
	}
	return nil
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
			free, total, _ := cu.MemInfo()
			return fmt.Errorf("alloc: %d bytes, of %d MiB %d MiB are free: %w; lower num_page_override, memory_ratio or max_extend_tokens", n, total>>20, free>>20, err)
		}
		p = uintptr(at)
		if err := cu.MemsetD8Async(at, 0, max(n, 1), g.copies); err != nil {
			return errors.Join(err, cu.MemFree(at))
		}
		return g.copied.Record(g.copies)
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

// Write implements cuda.Machine. It returns when src has been read: the driver stages what is not pinned.
func (g *machine) Write(dst uintptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return g.on(func() error {
		if err := cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(unsafe.SliceData(src)), int64(len(src)), g.copies); err != nil {
			return err
		}
		return g.copied.Record(g.copies)
	})
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
		if err := g.compute.Wait(g.copied, 0); err != nil {
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
		for i := range g.done {
			errs = append(errs, cu.DestroyEvent(&g.done[i]))
		}
		return errors.Join(append(errs, cu.DestroyEvent(&g.copied), g.compute.Destroy(), g.copies.Destroy())...)
	})
	return errors.Join(err, g.device.ReleasePrimaryCtx())
}

package engine

import (
	"errors"
	"slices"
	"sync"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// group runs one list on each of several devices of this process, which exchange
// what they computed wherever the lists gather. The lists have the same
// operations in the same places.
type group struct {
	devs    []device.Device
	jobs    chan []*ops.List
	results chan error
	runner  sync.WaitGroup
	parts   []ops.List // of each device: the operations up to the next exchange
	buffer  []float32
}

func newGroup(devs []device.Device) *group {
	g := &group{
		devs: devs, jobs: make(chan []*ops.List, maxSubmissions), results: make(chan error, maxSubmissions), parts: make([]ops.List, len(devs)),
	}
	g.runner.Go(func() {
		for lists := range g.jobs {
			g.results <- g.run(lists)
		}
	})
	return g
}

// Submit implements runner.
func (g *group) Submit(lists []*ops.List) error {
	g.jobs <- lists
	return nil
}

// Wait implements runner.
func (g *group) Wait() error { return <-g.results }

// Close implements runner.
func (g *group) Close() {
	close(g.jobs)
	g.runner.Wait()
}

// run runs the lists from exchange to exchange.
func (g *group) run(lists []*ops.List) error {
	isGather := func(o ops.Op) bool { return o.Kind == ops.KindAllGather }
	for at := 0; ; {
		rest := lists[0].Ops[at:]
		n := slices.IndexFunc(rest, isGather)
		end := at + n
		if n < 0 {
			end = len(lists[0].Ops)
		}
		if err := g.runPart(lists, at, end); err != nil || n < 0 {
			return err
		}
		if err := g.gather(lists, end); err != nil {
			return err
		}
		at = end + 1
	}
}

// runPart runs operations [from, to) on all devices at once.
func (g *group) runPart(lists []*ops.List, from, to int) error {
	var errs []error
	started := 0
	for i, dev := range g.devs {
		g.parts[i].Ops = lists[i].Ops[from:to]
		if err := dev.Submit(&g.parts[i]); err != nil {
			errs = append(errs, err)
			break
		}
		started++
	}
	for _, dev := range g.devs[:started] {
		errs = append(errs, dev.Wait())
	}
	return errors.Join(errs...)
}

// gather carries each rank's columns to all ranks.
func (g *group) gather(lists []*ops.List, at int) error {
	column := 0
	for i, from := range g.devs {
		x := lists[i].Ops[at].T[1]
		g.buffer = slices.Grow(g.buffer[:0], int(x.Rows*x.Cols))[:x.Rows*x.Cols]
		if err := from.Read(ops.Bytes(g.buffer), x.Addr); err != nil {
			return err
		}
		for j, to := range g.devs {
			if err := writeColumns(to, lists[j].Ops[at].T[0], column, int(x.Cols), g.buffer); err != nil {
				return err
			}
		}
		column += int(x.Cols)
	}
	return nil
}

// writeColumns writes rows of n values into dst from a column on.
func writeColumns(dev device.Device, dst ops.Tensor, column, n int, values []float32) error {
	for row := range int(dst.Rows) {
		addr := dst.Addr + ops.Addr(4*(row*int(dst.Stride)+column))
		if err := dev.Write(addr, ops.Bytes(values[row*n:(row+1)*n])); err != nil {
			return err
		}
	}
	return nil
}

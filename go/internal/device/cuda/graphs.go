//go:build cuda || amd64

package cuda

import (
	"hash/maphash"
	"slices"
	"unsafe"

	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// maxLists bounds the lists that are remembered, and so the graphs.
const maxLists = 1024

// graphs are the lists that came more than once, captured: a list that is launched as
// a graph costs one call instead of one for each kernel. The engine pads decoding batches to
// a few sizes, so that lists repeat, and lets each come twice when it starts.
type graphs struct {
	maxRows int // of the activations of a list; 0: no graphs
	seed    maphash.Seed
	lists   map[uint64]*graph
	clock   int
	started int // launches
}

// graph is a list that was submitted before. g is nil until it comes again.
type graph struct {
	ops    []ops.Op // a copy
	g      *kernels.Graph
	status uintptr
	flying bool
	used   int // the clock when it came last
}

// UseGraphs makes the device launch lists of at most maxRows rows that repeat as CUDA
// graphs; 0 ends that. No list may be in flight.
func (d *Device) UseGraphs(maxRows int) {
	d.graphs.free()
	d.graphs = graphs{maxRows: maxRows, seed: maphash.MakeSeed(), lists: map[uint64]*graph{}}
}

// GraphLaunches returns how many lists were launched as graphs.
func (d *Device) GraphLaunches() int { return d.graphs.started }

func (g *graphs) free() {
	for _, one := range g.lists {
		if one.g != nil {
			one.g.Free()
		}
	}
}

// bytesOf returns the memory of operations: they hold no pointers.
func bytesOf(list []ops.Op) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(unsafe.Sizeof(ops.Op{})))
}

// find returns what is remembered of a list, which from now on is remembered; nil if
// it is not one for graphs. again: it came before.
func (g *graphs) find(l *ops.List) (one *graph, again bool) {
	if g.maxRows == 0 || len(l.Ops) == 0 || int(l.Ops[0].T[0].Rows) > g.maxRows {
		return nil, false
	}
	g.clock++
	key := maphash.Bytes(g.seed, bytesOf(l.Ops))
	one = g.lists[key]
	if one != nil && !slices.Equal(one.ops, l.Ops) {
		return nil, false // two lists of one hash: the first keeps its place
	}
	if one != nil {
		one.used = g.clock
		return one, true
	}
	if len(g.lists) == maxLists && !g.forget() {
		return nil, false
	}
	one = &graph{ops: slices.Clone(l.Ops), used: g.clock}
	g.lists[key] = one
	return one, false
}

// forget gives up the list that has not come for the longest time; false if all are in flight.
func (g *graphs) forget() bool {
	var oldest uint64
	found := false
	for key, one := range g.lists {
		if !one.flying && (!found || one.used < g.lists[oldest].used) {
			oldest, found = key, true
		}
	}
	if !found {
		return false
	}
	if one := g.lists[oldest]; one.g != nil {
		one.g.Free()
	}
	delete(g.lists, oldest)
	return true
}

// launchGraph launches a list as a graph, which is captured if that was not done. It
// returns nil where the list is to be submitted as it is: when it comes for the first
// time, when its graph is in flight, or when it can't be, since submitting tells why.
func (d *Device) launchGraph(l *ops.List) *graph {
	if d.Exchanges() && d.exchange.Aborted() {
		return nil // a graph would gather all the same
	}
	one, again := d.graphs.find(l)
	if !again || one.flying || (one.g == nil && !d.capture(one)) {
		return nil
	}
	if d.m.Submit(one.g.Launch) != nil {
		return nil
	}
	one.flying = true
	d.graphs.started++
	return one
}

func (d *Device) capture(one *graph) bool {
	if one.status == 0 {
		b, err := d.mem.alloc(statusBytes)
		if err != nil {
			return false
		}
		one.status = b.p
	}
	return d.m.Capture(func(stream uintptr) (err error) {
		run := kernels.NewRun(stream, d.scratch.p, d.scratch.n, one.status, d.exchange.Exchange, d.attend)
		one.g, err = run.Capture(unsafe.Pointer(unsafe.SliceData(one.ops)), len(one.ops))
		return err
	}) == nil
}

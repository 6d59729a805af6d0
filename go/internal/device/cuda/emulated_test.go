//go:build !cuda && amd64

package cuda

import (
	"math"
	"slices"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/devicetest"
	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

var _ device.Device = (*Device)(nil)

func opener(order kernels.Order) devicetest.Open {
	return func() (device.Device, error) { return NewEmulated(Emulation{Order: order}) }
}

// An emulated device takes one core, so these run beside each other.
func TestDevice(t *testing.T) {
	t.Parallel()
	devicetest.Run(t, opener(kernels.Forward))
}

func TestFloat8(t *testing.T) {
	t.Parallel()
	devicetest.Float8(t, opener(kernels.Forward))
}

// Attention by FlashInfer, whose kernel is stood in for: what is made of a batch for it is ours.
func TestFlashInfer(t *testing.T) {
	t.Parallel()
	devicetest.FlashInfer(t, func() (device.Device, error) {
		d, err := NewEmulated(Emulation{Order: kernels.Shuffled})
		if err == nil {
			d.EmulateFlashInfer()
		}
		return d, err
	})
}

// The order of a block's threads never shows: no barrier is missing.
func TestSameBits(t *testing.T) {
	t.Parallel()
	want := devicetest.Workload(t, opener(kernels.Forward))
	for _, order := range []kernels.Order{kernels.Backward, kernels.Shuffled} {
		got := devicetest.Workload(t, opener(order))
		if len(got) != len(want) || len(want) == 0 {
			t.Fatalf("order %d: %d values, want %d", order, len(got), len(want))
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("order %d: value %d of %d is %v, want %v", order, i, len(want), got[i], want[i])
			}
		}
	}
}

func TestClosed(t *testing.T) {
	d, err := NewEmulated(Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	devicetest.Closed(t, d)
}

// TestGraphs: a list that comes again is launched as a graph, and gives what it gives
// without; one with a fault still tells it, and so does each of several in flight.
func TestGraphs(t *testing.T) {
	d, err := NewEmulated(Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.UseGraphs(2)
	alloc := func(values ...int32) ops.Tensor {
		a, err := d.Alloc(int64(4 * len(values)))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Write(a, ops.Bytes(values)); err != nil {
			t.Fatal(err)
		}
		return ops.New(a, 1, len(values), ops.I32)
	}
	x, row, dst := alloc(1, 2, 3, 4), alloc(0), alloc(0, 0)
	x = ops.New(x.Addr, 2, 2, ops.F32)
	dst = ops.New(dst.Addr, 1, 2, ops.F32)
	var l, long ops.List
	l.GatherRows(dst, x, row)
	long.GatherRows(ops.New(alloc(0, 0, 0, 0, 0, 0).Addr, 3, 2, ops.F32), x, alloc(0, 1, 0))
	run := func(l *ops.List, from int32) ([]int32, error) {
		t.Helper()
		if err := d.Write(row.Addr, ops.Bytes([]int32{from})); err != nil {
			t.Fatal(err)
		}
		if err := d.Submit(l); err != nil {
			t.Fatal(err)
		}
		if err := d.Wait(); err != nil {
			return nil, err
		}
		got := make([]int32, 2)
		if err := d.Read(ops.Bytes(got), dst.Addr); err != nil {
			t.Fatal(err)
		}
		return got, nil
	}
	for i, c := range []struct {
		from int32
		want []int32
	}{{1, []int32{3, 4}}, {0, []int32{1, 2}}, {2, nil}, {1, []int32{3, 4}}} {
		got, err := run(&l, c.from)
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("run %d, row %d: %v, %v; want %v", i, c.from, got, err, c.want)
		}
		if launches := d.GraphLaunches(); launches != i {
			t.Errorf("run %d: %d graphs were launched", i, launches)
		}
	}
	before := d.GraphLaunches()
	for range 3 {
		if _, err := run(&long, 0); err != nil {
			t.Error(err)
		}
	}
	if d.GraphLaunches() != before {
		t.Error("a list of more rows than graphs are for was launched as one")
	}
	for range MaxInFlight {
		if err := d.Submit(&l); err != nil {
			t.Fatal(err)
		}
	}
	for range MaxInFlight {
		if err := d.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// More lists than are remembered give what they give, in any order.
func TestManyGraphs(t *testing.T) {
	d, err := NewEmulated(Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.UseGraphs(1)
	a, err := d.Alloc(4 * 4 * maxLists)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxLists {
		x := ops.New(a+ops.Addr(4*(i%(2*maxLists))), 1, 1, ops.F32)
		var l ops.List
		l.RMSNorm(x, x, x, ops.Tensor{}, 1)
		if err := d.Submit(&l); err != nil {
			t.Fatal(err)
		}
		if err := d.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.graphs.lists) != maxLists {
		t.Errorf("%d lists are remembered, want %d", len(d.graphs.lists), maxLists)
	}
}

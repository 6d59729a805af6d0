//go:build !cuda && amd64

package cuda

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// rank is one of several devices, with a list that gathers.
type rank struct {
	dev    *Device
	x, dst ops.Tensor
	list   ops.List
}

// newRanks makes ranks whose x is [rows, cols], with rank i's value in row r and column c
// 100 i + 10 r + c.
func newRanks(t *testing.T, n, rows, cols int) []*rank {
	t.Helper()
	devs, err := NewEmulatedRanks(n, Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	var ranks []*rank
	for i, dev := range devs {
		t.Cleanup(func() { dev.Close() })
		r := &rank{dev: dev}
		var values []float32
		for row := range rows {
			for c := range cols {
				values = append(values, float32(100*i+10*row+c))
			}
		}
		alloc := func(cols int) ops.Tensor {
			a, err := dev.Alloc(int64(4 * rows * cols))
			if err != nil {
				t.Fatal(err)
			}
			return ops.New(a, rows, cols, ops.F32)
		}
		r.x, r.dst = alloc(cols), alloc(n*cols)
		if err := dev.Write(r.x.Addr, ops.Bytes(values)); err != nil {
			t.Fatal(err)
		}
		r.list.AllGather(r.dst, r.x)
		ranks = append(ranks, r)
	}
	return ranks
}

// each calls f for all ranks at once.
func each(ranks []*rank, f func(i int, r *rank)) {
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() { f(i, r) })
	}
	all.Wait()
}

// TestAllGather: every rank gets the columns of all, in order of rank, also when the list
// becomes a graph.
func TestAllGather(t *testing.T) {
	for _, rows := range []int{1, 3} {
		const n, cols, times = 3, 5, 4
		ranks := newRanks(t, n, rows, cols)
		var want []float32
		for row := range rows {
			for c := range n * cols {
				want = append(want, float32(100*(c/cols)+10*row+c%cols))
			}
		}
		each(ranks, func(i int, r *rank) {
			r.dev.UseGraphs(rows)
			for range times {
				got := make([]float32, len(want))
				if err := r.dev.Write(r.dst.Addr, ops.Bytes(got)); err != nil {
					t.Error(err)
				}
				if err := r.dev.Submit(&r.list); err != nil {
					t.Error(err)
				}
				if err := r.dev.Wait(); err != nil {
					t.Error(err)
				}
				if err := r.dev.Read(ops.Bytes(got), r.dst.Addr); err != nil || !slices.Equal(got, want) {
					t.Errorf("rank %d of %d rows: %v, %v; want %v", i, rows, got, err, want)
				}
			}
			if r.dev.GraphLaunches() != times-1 {
				t.Errorf("%d of %d lists were launched as graphs", r.dev.GraphLaunches(), times)
			}
		})
	}
}

// TestAbortedGraphs: graphs that gather are not launched any more when a rank has given up.
func TestAbortedGraphs(t *testing.T) {
	ranks := newRanks(t, 2, 1, 5)
	const times = 3
	each(ranks, func(_ int, r *rank) {
		r.dev.UseGraphs(1)
		for range times {
			if err := errors.Join(r.dev.Submit(&r.list), r.dev.Wait()); err != nil {
				t.Error(err)
			}
		}
	})
	ranks[0].dev.exchange.Abort()
	for i, r := range ranks {
		if err := r.dev.Submit(&r.list); err != nil {
			t.Fatal(err)
		}
		if err := r.dev.Wait(); err == nil || r.dev.GraphLaunches() != times-1 {
			t.Errorf("rank %d: %v, %d graphs", i, err, r.dev.GraphLaunches())
		}
	}
}

// TestAllGatherAborts: a rank that can't go on keeps the others from waiting for it, and
// one device by itself gathers nothing.
func TestAllGatherAborts(t *testing.T) {
	ranks := newRanks(t, 2, 3, 5)
	wrong := ranks[1].list
	wrong.Ops = slices.Clone(wrong.Ops)
	wrong.Ops[0].T[1].Cols = 4
	ranks[1].list = wrong
	for i, want := range []string{"exchange with the other ranks failed", "shape does not fit"} {
		defer func() {
			if err := ranks[i].dev.Wait(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v; want %q", i, err, want)
			}
		}()
	}
	each(ranks, func(_ int, r *rank) {
		if err := r.dev.Submit(&r.list); err != nil {
			t.Error(err)
		}
	})
	alone, err := NewEmulated(Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if err := alone.Submit(&ranks[0].list); err != nil {
		t.Fatal(err)
	}
	if err := alone.Wait(); err == nil || !strings.Contains(err.Error(), "unknown kind") {
		t.Errorf("a single device: %v", err)
	}
}

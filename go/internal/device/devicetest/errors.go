package devicetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// badOp is an operation that a device must refuse with an error, having an
// otherwise right one as its start.
type badOp struct {
	what string
	op   func(r *rig) ops.Op
}

func recorded(record func(l *ops.List)) ops.Op {
	var l ops.List
	record(&l)
	return l.Ops[0]
}

func linearOp(r *rig) ops.Op {
	return recorded(func(l *ops.List) {
		l.Linear(r.alloc(2, 20, ops.F32), r.alloc(2, 10, ops.F32), r.weight(20, 10, ops.F32, random(1, 200)), ops.Tensor{})
	})
}

func embedOp(r *rig, ids ...int32) ops.Op {
	return recorded(func(l *ops.List) {
		l.Embed(r.alloc(len(ids), 8, ops.F32), r.weight(20, 8, ops.BF16, random(1, 160)), r.i32(ids...), r.i32(1, 99), 0)
	})
}

func attentionOp(r *rig, h ops.Heads, dt ops.DType, pages, cu, lens []int32) ops.Op {
	return recorded(func(l *ops.List) {
		table := r.i32(pages...)
		l.Attention(r.alloc(2, h.Q*h.Dim, ops.F32), r.alloc(2, h.Q*h.Dim, ops.F32),
			ops.Paged{Table: table, CuQLens: r.i32(cu...), KVLens: r.i32(lens...), PageSize: 4},
			r.alloc(32, h.KV*h.Dim, dt), r.alloc(32, h.KV*h.Dim, dt), h, 1, 0)
	})
}

// badAttentionOps have faults in the memory of indices.
func badAttentionOps(h ops.Heads, dt ops.DType) []badOp {
	return []badOp{
		{"attention, page beyond the cache", func(r *rig) ops.Op { return attentionOp(r, h, dt, []int32{8}, []int32{0, 2}, []int32{4}) }},
		{"attention, negative page", func(r *rig) ops.Op { return attentionOp(r, h, dt, []int32{-1}, []int32{0, 2}, []int32{4}) }},
		{"attention, too few pages", func(r *rig) ops.Op { return attentionOp(r, h, dt, []int32{1}, []int32{0, 2}, []int32{5}) }},
		{"attention, more rows than positions", func(r *rig) ops.Op { return attentionOp(r, h, dt, []int32{1}, []int32{0, 2}, []int32{1}) }},
		{"attention, rows left over", func(r *rig) ops.Op { return attentionOp(r, h, dt, []int32{1}, []int32{0, 1}, []int32{4}) }},
	}
}

func ropeOp(r *rig, positions, slots []int32) ops.Op {
	return recorded(func(l *ops.List) {
		l.RopeStore(r.alloc(2, 64, ops.F32), ops.Rope{Positions: r.i32(positions...), Slots: r.i32(slots...), Table: r.alloc(9, 16, ops.F32), PageSize: 4},
			r.alloc(32, 16, ops.F32), r.alloc(32, 16, ops.F32), ops.Tensor{}, ops.Tensor{}, ops.Heads{Q: 2, KV: 1, Dim: 16}, 1e-5)
	})
}

func sampleOp(r *rig, slot int32) ops.Op {
	return recorded(func(l *ops.List) {
		l.Sample(r.alloc(1, 1, ops.I32), r.alloc(1, 8, ops.F32), r.sampling([]ops.Sampling{{Slot: slot}}), r.i32(0, 0), 8)
	})
}

// changed returns op with one operand changed.
func changed(op ops.Op, i int, change func(t *ops.Tensor)) ops.Op {
	change(&op.T[i])
	return op
}

func badOps() []badOp {
	dtype := func(dt ops.DType) func(*ops.Tensor) { return func(t *ops.Tensor) { t.DType = dt } }
	missing := func(t *ops.Tensor) { t.Addr = 0 }
	narrow := func(t *ops.Tensor) { t.Cols-- }
	return []badOp{
		{"kind 0", func(*rig) ops.Op { return ops.Op{} }},
		{"unknown kind", func(*rig) ops.Op { return ops.Op{Kind: 99} }},
		{"linear, output of bf16", func(r *rig) ops.Op { return changed(linearOp(r), 0, dtype(ops.BF16)) }},
		{"linear, x of i32", func(r *rig) ops.Op { return changed(linearOp(r), 1, dtype(ops.I32)) }},
		{"linear, weight of i32", func(r *rig) ops.Op { return changed(linearOp(r), 2, dtype(ops.I32)) }},
		{"linear, no x", func(r *rig) ops.Op { return changed(linearOp(r), 1, missing) }},
		{"linear, narrow x", func(r *rig) ops.Op { return changed(linearOp(r), 1, narrow) }},
		{"linear, negative rows", func(r *rig) ops.Op { return changed(linearOp(r), 1, func(t *ops.Tensor) { t.Rows = -1 }) }},
		{"embed, id beyond the table", func(r *rig) ops.Op { return embedOp(r, 3, 20) }},
		{"embed, row beyond the last tokens", func(r *rig) ops.Op { return embedOp(r, -3) }},
		{"embed, last token beyond the table", func(r *rig) ops.Op { return embedOp(r, -2) }},
		{"rope, position beyond the table", func(r *rig) ops.Op { return ropeOp(r, []int32{0, 9}, []int32{0, 1}) }},
		{"rope, slot beyond the cache", func(r *rig) ops.Op { return ropeOp(r, []int32{0, 1}, []int32{0, 32}) }},
		{"rope, negative slot", func(r *rig) ops.Op { return ropeOp(r, []int32{0, 1}, []int32{0, -1}) }},
		{"attention, cache of i32", func(r *rig) ops.Op {
			op := attentionOp(r, ops.Heads{Q: 2, KV: 1, Dim: 16}, ops.F32, []int32{1}, []int32{0, 2}, []int32{4})
			return changed(changed(op, 2, dtype(ops.I32)), 3, dtype(ops.I32))
		}},
		{"sample, slot beyond the last tokens", func(r *rig) ops.Op { return sampleOp(r, 2) }},
		{"gate, unknown activation", func(r *rig) ops.Op {
			op := recorded(func(l *ops.List) { l.ActMul(r.alloc(1, 4, ops.F32), r.alloc(1, 8, ops.F32), ops.SiLU) })
			op.I[0] = 2
			return op
		}},
		{"gather, row beyond x", func(r *rig) ops.Op {
			return recorded(func(l *ops.List) { l.GatherRows(r.alloc(1, 4, ops.F32), r.alloc(3, 4, ops.F32), r.i32(3)) })
		}},
	}
}

func testErrors(t *testing.T, open Open) {
	attention := badAttentionOps(ops.Heads{Q: 2, KV: 1, Dim: 16}, ops.F32)
	testBadOps(t, open, slices.Concat(badOps(), attention, badMoEOps(), badLogitOps()))
}

func testBadOps(t *testing.T, open Open, bad []badOp) {
	for _, c := range bad {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t, open)
			good := r.poisoned(2, 20, ops.F32)
			first := linearOp(r)
			first.T[0] = good
			err := r.try(&ops.List{Ops: []ops.Op{first, c.op(r), first}})
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), "operation 1") {
				t.Errorf("error %q does not name operation 1", err)
			}
			for _, f := range r.floats(good) {
				if f != f {
					t.Fatal("the operation before the failed one has not run")
				}
			}
			r.run(&ops.List{Ops: []ops.Op{first}}) // the device still works
		})
	}
}

func testLists(t *testing.T, open Open) {
	r := newRig(t, open)
	if err := r.d.Wait(); err == nil {
		t.Error("wait without a list: no error")
	}
	r.run(&ops.List{}) // empty
	x, one := r.f32(1, 4, []float32{1, 2, 3, 4}), r.i32(0)
	a, b := r.poisoned(1, 4, ops.F32), r.poisoned(1, 4, ops.F32)
	var first, second ops.List
	first.GatherRows(a, x, one)
	second.GatherRows(b, a, one)
	for _, l := range []*ops.List{&first, &second, &first, &second} {
		if err := r.d.Submit(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.d.Submit(&first); err == nil {
		t.Error("fifth list in flight: no error")
	}
	for range 4 {
		if err := r.d.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	requireSame(t, "in order", r.floats(b), []float32{1, 2, 3, 4})
	var bad ops.List
	bad.GatherRows(a, x, r.i32(0, 0)) // shapes that do not fit
	if err := r.d.Submit(&bad); err == nil {
		t.Error("a list with a shape error: no error")
	}
}

// Closed closes a device: a second time does nothing, and no list is taken then.
func Closed(t *testing.T, d device.Device) {
	t.Helper()
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Submit(&ops.List{}); err == nil {
		t.Error("submit to a closed device: no error")
	}
}

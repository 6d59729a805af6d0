package model

import (
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// A long batch goes through an mlp by slices, which cover all rows and share one
// activation.
func TestMLPGoesBySlices(t *testing.T) {
	const rows, hidden, inner = 2*mlpRows + 7, 8, 12
	c := Config{HiddenSize: hidden, IntermediateSize: inner, Heads: 1, KVHeads: 1, HeadDim: 8, VocabSize: 4}
	next := ops.Addr(64)
	alloc := func(r, c int) ops.Tensor {
		tensor := ops.New(next, r, c, ops.F32)
		next += ops.Addr(tensor.Bytes() + 64)
		return tensor
	}
	s := NewScratch(c, rows, 1, alloc)
	if s.GateUp.Rows != mlpRows || s.Act.Rows != mlpRows {
		t.Errorf("room for %v and %v between the projections, want %d rows", s.GateUp, s.Act, mlpRows)
	}
	var l ops.List
	newMLP(c, layout{}, shapes{}, "").forward(&l, s)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	at := 0
	for i := 0; i+2 < len(l.Ops); i += 3 {
		x, act, gated, dst := l.Ops[i].T[1], l.Ops[i+1].T[0], l.Ops[i+2].T[1], l.Ops[i+2].T[0]
		if want := s.Hidden.Below(at, int(x.Rows)); x != want || dst != want {
			t.Errorf("slice %d reads %v and writes %v, want %v", i/3, x, dst, want)
		}
		if act != gated || act.Addr != s.Act.Addr {
			t.Errorf("slice %d: activation %v, then %v", i/3, act, gated)
		}
		at += int(x.Rows)
	}
	if at != rows || len(l.Ops) != 9 {
		t.Errorf("%d operations cover %d rows, want 9 for %d", len(l.Ops), at, rows)
	}
}

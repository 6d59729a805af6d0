package model

import (
	"github.com/minisgl/minisgl/go/internal/ops"
)

// OpList returns the text of the operations of a forward pass over a prompt of
// three tokens, without weights: shapes only. It is what the golden files hold.
func OpList(c Config) (string, error) {
	m, err := New(c, shapes{})
	if err != nil {
		return "", err
	}
	const rows, samples, pageSize = 3, 1, 16
	alloc := func(r, c int) ops.Tensor { return ops.New(1, r, c, ops.F32) }
	row := func(n int) ops.Tensor { return ops.New(1, 1, n, ops.I32) }
	cache := ops.New(1, pageSize, c.KVHeads*c.HeadDim, ops.BF16)
	kv := make([]Cache, c.Layers)
	for i := range kv {
		kv[i] = Cache{K: cache, V: cache}
	}
	tables := make([]ops.Tensor, len(c.Ropes))
	for i := range tables {
		tables[i] = ops.New(1, rows, c.HeadDim, ops.F32)
	}
	in := &Inputs{
		IDs: row(rows), Last: row(1), LogitRows: row(samples),
		Rope:       ops.Rope{Positions: row(rows), Slots: row(rows), PageSize: pageSize},
		Paged:      ops.Paged{Table: ops.New(1, 1, 1, ops.I32), CuQLens: row(2), KVLens: row(1), PageSize: pageSize},
		RopeTables: tables,
	}
	var l ops.List
	m.Forward(&l, in, kv, NewScratch(c, rows, samples, alloc))
	return l.String(), l.Err()
}

// shapes is a Loader of tensors that have a shape and nothing else.
type shapes struct{}

// Linear implements Loader.
func (shapes) Linear(cols int, parts ...Part) ops.Tensor {
	return ops.New(1, stacked(parts), cols, ops.BF16)
}

// Vector implements Loader.
func (shapes) Vector(parts ...Part) ops.Tensor { return ops.New(1, 1, stacked(parts), ops.F32) }

// Norm implements Loader.
func (shapes) Norm(p Part, _ float32) ops.Tensor { return ops.New(1, 1, p.Rows, ops.F32) }

// Has implements Loader.
func (shapes) Has(string) bool { return false }

func stacked(parts []Part) int {
	n := 0
	for _, p := range parts {
		n += p.Rows
	}
	return n
}

package ref

import (
	"math"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// heads are the numbers that RopeStore and Attention share.
type heads struct {
	q, kv, dim, pageSize int
}

func headsOf(op ops.Op) heads {
	h := heads{int(op.I[0]), int(op.I[1]), int(op.I[2]), int(op.I[3])}
	require(h.q > 0 && h.kv > 0 && h.q%h.kv == 0 && h.dim > 0 && h.dim%2 == 0 && h.pageSize > 0,
		"%d query heads, %d key/value heads of %d elements, page size %d", h.q, h.kv, h.dim, h.pageSize)
	return h
}

// of returns head i of a row.
func (h heads) of(row []float32, i int) []float32 { return row[i*h.dim : (i+1)*h.dim] }

func (m *memory) ropeStore(op ops.Op) {
	h := headsOf(op)
	rows := int(op.T[0].Rows)
	qkv := m.typed(op.T[0], ops.F32, rows, (h.q+2*h.kv)*h.dim)
	positions, slots := m.typed(op.T[1], ops.I32, 1, rows).ints(0), m.typed(op.T[2], ops.I32, 1, rows).ints(0)
	table := m.typed(op.T[3], ops.F32, int(op.T[3].Rows), h.dim)
	k, v := m.cache(op.T[4], h), m.cache(op.T[5], h)
	for r := range rows {
		row, cosSin := qkv.row(r), table.row(positions[r])
		for i := range h.q + h.kv {
			norm := op.T[6]
			if i >= h.q {
				norm = op.T[7]
			}
			head := h.of(row, i)
			if norm.Valid() {
				copy(head, normalise(head, m.typed(norm, ops.F32, 1, h.dim).row(0), op.F[0]))
			}
			rotate(head, cosSin)
		}
		qkv.setRow(r, row)
		k.setHeads(slots[r], h, row[h.q*h.dim:(h.q+h.kv)*h.dim])
		v.setHeads(slots[r], h, row[(h.q+h.kv)*h.dim:])
	}
}

// rotate turns element i and element i + len/2 by angle i (Su et al., 2021, in
// the half-split form); cosSin holds the cosines, then the sines. Every product
// and sum is rounded to float32.
func rotate(x, cosSin []float32) {
	half := len(x) / 2
	for i := range half {
		a, b, c, s := x[i], x[i+half], cosSin[i], cosSin[i+half]
		x[i] = float32(a*c) - float32(b*s)
		x[i+half] = float32(b*c) + float32(a*s)
	}
}

func (m *memory) attention(op ops.Op) {
	h := headsOf(op)
	rows, window := int(op.T[1].Rows), int(op.I[4])
	dst, q := m.typed(op.T[0], ops.F32, rows, h.q*h.dim), m.typed(op.T[1], ops.F32, rows, h.q*h.dim)
	k, v := m.cache(op.T[2], h), m.cache(op.T[3], h)
	requests := int(op.T[4].Rows)
	pages := m.typed(op.T[4], ops.I32, requests, int(op.T[4].Cols))
	cu, lens := m.typed(op.T[5], ops.I32, 1, requests+1).ints(0), m.typed(op.T[6], ops.I32, 1, requests).ints(0)
	require(cu[0] == 0 && cu[requests] == rows, "cumulative query lengths %v for %d rows", cu, rows)
	for r := range requests {
		require(cu[r] <= cu[r+1] && cu[r+1]-cu[r] <= lens[r], "request %d: rows %d to %d, length %d", r, cu[r], cu[r+1], lens[r])
		first := func(position int) int {
			if window > 0 {
				return max(0, position+1-window)
			}
			return 0
		}
		// From the first position that the first row looks at.
		list, start := pages.ints(r), lens[r]-(cu[r+1]-cu[r])
		from := first(start)
		var keys, values [][]float32
		for row := cu[r]; row < cu[r+1]; row++ {
			position := start + row - cu[r]
			for p := from + len(keys); p <= position; p++ {
				require(p/h.pageSize < len(list), "request %d: position %d is beyond its %d pages", r, p, len(list))
				slot := list[p/h.pageSize]*h.pageSize + p%h.pageSize
				keys, values = append(keys, k.heads(slot, h)), append(values, v.heads(slot, h))
			}
			seen := first(position) - from
			dst.setRow(row, h.attend(q.row(row), keys[seen:], values[seen:], op.F[0]))
		}
	}
}

// attend returns softmax(scale · q · kᵀ) · v for all heads of one row, all of them copies.
//
//go:norace
func (h heads) attend(q []float32, keys, values [][]float32, scale float32) []float32 {
	out := make([]float32, len(q))
	scores := make([]float64, len(keys))
	for i := range h.q {
		kv := i / (h.q / h.kv)
		most := math.Inf(-1)
		for p := range keys {
			scores[p] = dot(h.of(q, i), h.of(keys[p], kv)) * float64(scale)
			most = max(most, scores[p])
		}
		var total float64
		sum := make([]float64, h.dim)
		for p := range keys {
			weight := math.Exp(scores[p] - most)
			total += weight
			for j, x := range h.of(values[p], kv) {
				sum[j] += weight * float64(x)
			}
		}
		for j := range sum {
			h.of(out, i)[j] = float32(sum[j] / total)
		}
	}
	return out
}

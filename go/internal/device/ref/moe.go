package ref

import (
	"cmp"
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// experts is a mixture of experts.
type experts struct {
	gateUp, down view
	read         map[int]expert // those that a row has asked for
	hidden       int            // of x
	inter        int            // between the projections
	topK         int
	normalise    bool
}

// expert is the rows of one expert's weights.
type expert struct{ gate, up, down [][]float32 }

func (m *memory) moe(op ops.Op) {
	rows, hidden, n := int(op.T[1].Rows), int(op.T[1].Cols), int(op.T[2].Cols)
	dst, x := m.typed(op.T[0], ops.F32, rows, hidden), m.typed(op.T[1], ops.F32, rows, hidden)
	logits := m.typed(op.T[2], ops.F32, rows, n)
	e := experts{
		gateUp: m.weight(op.T[3]), down: m.weight(op.T[4]), read: map[int]expert{},
		hidden: hidden, inter: int(op.T[4].Cols), topK: int(op.I[0]), normalise: op.I[1] != 0,
	}
	require(int(e.gateUp.Rows) == n*ops.ExpertRows(2*e.inter) && int(e.gateUp.Cols) == hidden &&
		int(e.down.Rows) == n*ops.ExpertRows(hidden), "weights %v and %v of %d experts", op.T[3], op.T[4], n)
	require(e.topK >= 1 && e.topK <= n, "%d of %d experts", e.topK, n)
	for r := range rows {
		dst.setRow(r, e.mix(x.row(r), logits.row(r)))
	}
}

// mix returns the sum of the outputs of a row's experts.
func (e *experts) mix(x, logits []float32) []float32 {
	ids, weights := e.route(logits)
	sum := make([]float64, e.hidden)
	for i, id := range ids {
		for c, v := range e.output(id, x) {
			sum[c] += weights[i] * v
		}
	}
	out := make([]float32, e.hidden)
	for c, v := range sum {
		out[c] = float32(v)
	}
	return out
}

// route returns the experts with the largest logits, ascending, and their weights.
func (e *experts) route(logits []float32) (ids []int, weights []float64) {
	var all, chosen float64
	most := float64(slices.Max(logits))
	for i, v := range logits {
		all += math.Exp(float64(v) - most)
		ids = append(ids, i)
	}
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	ids = slices.Sorted(slices.Values(ids[:e.topK]))
	for _, id := range ids {
		weights = append(weights, math.Exp(float64(logits[id])-most)/all)
		chosen += weights[len(weights)-1]
	}
	for i := range weights {
		if e.normalise {
			weights[i] /= chosen
		}
	}
	return ids, weights
}

// output is one expert's down(silu(gate(x)) * up(x)).
func (e *experts) output(id int, x []float32) []float64 {
	w := e.expert(id)
	act := make([]float32, e.inter)
	x = meeting(x, e.gateUp.DType)
	for i := range act {
		gate, up := dot(x, w.gate[i]), dot(x, w.up[i])
		act[i] = float32(gate / (1 + math.Exp(-gate)) * up)
	}
	act = meeting(act, e.down.DType)
	out := make([]float64, e.hidden)
	for c := range out {
		out[c] = dot(act, w.down[c])
	}
	return out
}

func (e *experts) expert(id int) expert {
	w, ok := e.read[id]
	if !ok {
		first := id * ops.ExpertRows(2*e.inter)
		w.gate, w.up = e.gateUp.rows(first, e.inter), e.gateUp.rows(first+e.inter, e.inter)
		w.down = e.down.rows(id*ops.ExpertRows(e.hidden), e.hidden)
		e.read[id] = w
	}
	return w
}

// rows returns copies of n rows as float32.
func (v view) rows(first, n int) [][]float32 {
	out := make([][]float32, n)
	for i := range out {
		out[i] = v.row(first + i)
	}
	return out
}

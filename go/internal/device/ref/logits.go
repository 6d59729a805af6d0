package ref

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// adjust applies penalties and biases; its arithmetic is float32, so that every
// device gives the same bits.
func (m *memory) adjust(op ops.Op) {
	logits, vocab := m.typed(op.T[0], ops.F32, int(op.T[0].Rows), int(op.T[0].Cols)), int(op.I[0])
	rows := m.typed(op.T[1], ops.I32, int(op.T[1].Rows), ops.AdjustmentWords)
	data := m.typed(op.T[2], ops.I32, 1, int(op.T[2].Cols)).ints(0)
	require(vocab > 0 && vocab <= int(logits.Cols), "vocabulary of %d tokens, logits %v", vocab, logits.Tensor)
	for i := range int(rows.Rows) {
		a := adjustmentOf(rows.ints(i))
		first, outputs, biases := int(a.First), int(a.Outputs), int(a.Biases)
		require(first >= 0 && outputs >= 0 && biases >= 0 && first+outputs+2*biases <= len(data), "row %d: %+v, data %v", i, a, op.T[2])
		x := logits.row(int(a.Row))
		penalise(x[:vocab], a, m.outputs(op.T[3], data[first:first+outputs], vocab))
		bias(x[:vocab], data[first+outputs:first+outputs+2*biases])
		logits.setRow(int(a.Row), x)
	}
}

func adjustmentOf(words []int) ops.Adjustment {
	f := func(i int) float32 { return math.Float32frombits(uint32(words[i])) }
	return ops.Adjustment{
		Row: int32(words[0]), Presence: f(1), Frequency: f(2), Repetition: f(3),
		First: int32(words[4]), Outputs: int32(words[5]), Biases: int32(words[6]),
	}
}

// outputs counts the tokens of a list of ids.
func (m *memory) outputs(last ops.Tensor, ids []int, vocab int) map[int]int {
	counts := map[int]int{}
	for _, id := range ids {
		if id < 0 {
			known := m.typed(last, ops.I32, 1, int(last.Cols)).ints(0)
			require(-id-1 < len(known), "slot %d of %v", -id-1, last)
			id = known[-id-1]
		}
		require(id >= 0 && id < vocab, "token %d of %d", id, vocab)
		counts[id]++
	}
	return counts
}

func penalise(x []float32, a ops.Adjustment, counts map[int]int) {
	for id, n := range counts {
		x[id] -= float32(a.Frequency*float32(n)) + a.Presence
		if x[id] < 0 {
			x[id] *= a.Repetition
		} else {
			x[id] /= a.Repetition
		}
	}
}

func bias(x []float32, pairs []int) {
	for i := 0; i < len(pairs); i += 2 {
		id := pairs[i]
		require(id >= 0 && id < len(x), "token %d of %d", id, len(x))
		x[id] += math.Float32frombits(uint32(pairs[i+1]))
	}
}

// mask takes away the tokens whose bits are not set.
func (m *memory) mask(op ops.Op) {
	logits, vocab := m.typed(op.T[0], ops.F32, int(op.T[0].Rows), int(op.T[0].Cols)), int(op.I[0])
	require(vocab > 0 && vocab <= int(logits.Cols), "vocabulary of %d tokens, logits %v", vocab, logits.Tensor)
	rows := m.typed(op.T[1], ops.I32, 1, int(op.T[1].Cols)).ints(0)
	bits := m.typed(op.T[2], ops.I32, len(rows), ops.MaskWords(vocab))
	for i, row := range rows {
		x, words := logits.row(row), bits.ints(i)
		for id := range vocab {
			if words[id/32]>>(id%32)&1 == 0 {
				x[id] = float32(math.Inf(-1))
			}
		}
		logits.setRow(row, x)
	}
}

func (m *memory) logprobs(op ops.Op) {
	logits, vocab := m.typed(op.T[1], ops.F32, int(op.T[1].Rows), int(op.T[1].Cols)), int(op.I[0])
	dst := m.typed(op.T[0], ops.I32, int(op.T[0].Rows), int(op.T[0].Cols))
	rows := m.typed(op.T[2], ops.I32, int(op.T[0].Rows), ops.ScoringWords)
	require(vocab > 0 && vocab <= int(logits.Cols) && dst.Cols%2 == 1, "vocabulary of %d tokens, dst %v, logits %v", vocab, dst.Tensor, logits.Tensor)
	for i := range int(rows.Rows) {
		words := rows.ints(i)
		row, token, top, temperature := words[0], words[1], words[2], float64(math.Float32frombits(uint32(words[3])))
		require(top >= 0 && top <= vocab && 2*top < int(dst.Cols) && temperature > 0, "top %d at temperature %v, dst %v", top, temperature, dst.Tensor)
		if token < 0 {
			require(row >= 0 && row < int(logits.Rows), "row %d of %v", row, logits.Tensor)
			token = m.typed(op.T[3], ops.I32, 1, int(logits.Rows)).ints(0)[row]
		}
		require(token >= 0 && token < vocab, "token %d of %d", token, vocab)
		x := withoutNaN(logits.row(row)[:vocab])
		dst.setWords(i, likeliest(x, logSoftmax(x, temperature), token, top))
	}
}

// withoutNaN puts -Inf in the place of each NaN.
func withoutNaN(x []float32) []float32 {
	for i := range x {
		if x[i] != x[i] {
			x[i] = float32(math.Inf(-1))
		}
	}
	return x
}

// logSoftmax returns the log-probabilities of x / temperature.
func logSoftmax(x []float32, temperature float64) []float64 {
	p, most, sum := make([]float64, len(x)), slices.Max(x), 0.0
	for i := range p {
		if x[i] != most { // the difference of two infinities is not a number
			p[i] = (float64(x[i]) - float64(most)) / temperature
		}
		sum += math.Exp(p[i])
	}
	for i := range p {
		p[i] -= math.Log(sum)
	}
	return p
}

// likeliest returns a row of dst, of the logits x and their log-probabilities p.
func likeliest(x []float32, p []float64, token, top int) []uint32 {
	words := []uint32{math.Float32bits(float32(p[token]))}
	ids := make([]int, len(p))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(x[b], x[a]) })
	for _, id := range ids[:top] {
		words = append(words, uint32(id), math.Float32bits(float32(p[id])))
	}
	return words
}

// setWords stores the beginning of row r of an I32 tensor.
func (v view) setWords(r int, words []uint32) {
	at := v.at(r)
	for c, w := range words {
		require(c < int(v.Cols), "column %d of %v", c, v.Tensor)
		binary.LittleEndian.PutUint32(v.b[at+4*c:], w)
	}
}

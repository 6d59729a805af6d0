package devicetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

func testLogits(t *testing.T, open Open) {
	t.Run("adjust", func(t *testing.T) { testAdjust(t, open) })
	t.Run("adjust_reference", func(t *testing.T) { testAdjustReference(t, open) })
	t.Run("mask", func(t *testing.T) { testMask(t, open) })
	t.Run("logprobs", func(t *testing.T) { testLogprobs(t, open) })
	t.Run("logprobs_reference", func(t *testing.T) { testLogprobsReference(t, open) })
}

// words returns values as an I32 tensor [rows, cols].
func (r *rig) words(rows, cols int, words []int32) ops.Tensor {
	r.t.Helper()
	tensor := r.i32(words...)
	tensor.Rows, tensor.Cols, tensor.Stride = int32(rows), int32(cols), int32(cols)
	return tensor
}

func (r *rig) adjustments(rows []ops.Adjustment) ops.Tensor {
	r.t.Helper()
	var words []int32
	for _, a := range rows {
		words = append(words, a.Row, bits(a.Presence), bits(a.Frequency), bits(a.Repetition), a.First, a.Outputs, a.Biases, 0)
	}
	return r.words(len(rows), ops.AdjustmentWords, words)
}

func bits(f float32) int32 { return int32(math.Float32bits(f)) }

// The rules of sglang's penalties, worked out by hand on numbers that float32
// holds exactly.
func testAdjust(t *testing.T, open Open) {
	r := newRig(t, open)
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		what   string
		row    ops.Adjustment
		data   []int32
		logits []float32
		want   []float32
	}{
		{"nothing", ops.Adjustment{Repetition: 1}, []int32{0}, []float32{1, 2, 3}, []float32{1, 2, 3}},
		{"presence counts once", ops.Adjustment{Presence: 0.5, Repetition: 1, Outputs: 3}, []int32{1, 1, 2}, []float32{1, 2, 3}, []float32{1, 1.5, 2.5}},
		{"frequency counts each", ops.Adjustment{Frequency: 0.5, Repetition: 1, Outputs: 3}, []int32{1, 1, 2}, []float32{1, 2, 3}, []float32{1, 1, 2.5}},
		{"repetition divides what is positive and multiplies what is negative", ops.Adjustment{Repetition: 2, Outputs: 2}, []int32{0, 1}, []float32{3, -1, 4}, []float32{1.5, -2, 4}},
		{"repetition comes after the others", ops.Adjustment{Presence: 2, Repetition: 2, Outputs: 1}, []int32{0}, []float32{1, 0, 0}, []float32{-2, 0, 0}},
		{"the token on its way", ops.Adjustment{Frequency: 1, Repetition: 1, Outputs: 2}, []int32{1, -3}, []float32{1, 2, 3}, []float32{1, 0, 3}},
		{"biases come last and add up", ops.Adjustment{Repetition: 2, Outputs: 1, Biases: 3}, []int32{0, 0, bits(1), 2, bits(-0.5), 2, bits(4)}, []float32{4, 0, 1}, []float32{3, 0, 4.5}},
		{"a bias that forbids", ops.Adjustment{Repetition: 1, Biases: 2}, []int32{1, bits(-inf), 1, bits(100)}, []float32{1, 9, 1}, []float32{1, -inf, 1}},
		{"first", ops.Adjustment{Presence: 1, Repetition: 1, First: 2, Outputs: 1}, []int32{7, 7, 2}, []float32{1, 1, 1}, []float32{1, 1, 0}},
	} {
		logits := r.f32(2, 4, append([]float32{5, 5, 5, 5}, append(c.logits, 6)...))
		c.row.Row = 1
		var l ops.List
		l.Adjust(logits, r.adjustments([]ops.Adjustment{c.row}), r.i32(c.data...), r.i32(0, 0, 1), 3)
		r.run(&l)
		requireSame(t, c.what, r.floats(logits), append([]float32{5, 5, 5, 5}, append(c.want, 6)...))
	}
}

// Adjust gives the same bits on every device.
func testAdjustReference(t *testing.T, open Open) {
	const vocab, rows, perRow = 1003, 9, 60
	scenario := func(r *rig) []float32 {
		logits := r.f32(rows, vocab, random(7, rows*vocab))
		var data []int32
		var list []ops.Adjustment
		noise := random(8, rows*perRow*3)
		for i := range rows {
			a := ops.Adjustment{
				Row: int32(i), Presence: float32(i) * 0.17, Frequency: 0.3 - 0.05*float32(i), Repetition: 0.7 + 0.11*float32(i),
				First: int32(len(data)), Outputs: perRow, Biases: int32(i % 3),
			}
			for k := range perRow {
				data = append(data, int32(math.Abs(float64(noise[i*perRow+k]))*1000)%40)
			}
			data[len(data)-1] = -1 - int32(i%2)
			for k := range int(a.Biases) {
				data = append(data, int32(k*7), bits(noise[k]))
			}
			list = append(list, a)
		}
		var l ops.List
		l.Adjust(logits, r.adjustments(list), r.i32(data...), r.i32(3, 999), vocab)
		r.run(&l)
		return r.floats(logits)
	}
	requireSame(t, "adjusted logits", scenario(newRig(t, open)), scenario(newRef(t)))
}

// Rows that have bits keep the tokens whose bit is set, bit for bit, also where
// the vocabulary ends within a word; other rows, and what is beyond the vocabulary,
// stay as they are.
func testMask(t *testing.T, open Open) {
	inf := float32(math.Inf(1))
	for _, vocab := range []int{1, 31, 32, 33, 64, 1000, 1003} {
		r := newRig(t, open)
		const rows, beyond = 5, 3
		x := random(uint64(vocab), rows*(vocab+beyond))
		want := slices.Clone(x)
		noise := random(uint64(vocab)+1, 2*vocab)
		masked := []int32{3, 0}
		words := make([]int32, len(masked)*ops.MaskWords(vocab))
		for i, row := range masked {
			for id := range vocab {
				if noise[i*vocab+id] > 0 {
					words[i*ops.MaskWords(vocab)+id/32] |= 1 << (id % 32)
				} else {
					want[int(row)*(vocab+beyond)+id] = -inf
				}
			}
		}
		logits := r.f32(rows, vocab+beyond, x)
		var l ops.List
		l.Mask(logits, r.i32(masked...), r.words(len(masked), ops.MaskWords(vocab), words), vocab)
		r.run(&l)
		requireSame(t, fmt.Sprintf("%d tokens", vocab), r.floats(logits), want)
	}
}

func (r *rig) scorings(rows []ops.Scoring) ops.Tensor {
	r.t.Helper()
	var words []int32
	for _, s := range rows {
		words = append(words, s.Row, s.Token, s.Top, bits(s.Temperature))
	}
	return r.words(len(rows), ops.ScoringWords, words)
}

// testLogprobs checks values that are known: equal logits, and logits that are
// logarithms of small numbers.
func testLogprobs(t *testing.T, open Open) {
	r := newRig(t, open)
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		what    string
		logits  []float32
		scoring ops.Scoring
		want    []float64 // the token's, then pairs
	}{
		{"equals", []float32{2, 2, 2, 2}, ops.Scoring{Token: 3, Temperature: 1, Top: 2}, []float64{math.Log(0.25), 0, math.Log(0.25), 1, math.Log(0.25)}},
		{"shares of ten", []float32{ln(1), ln(4), ln(2), ln(3)}, ops.Scoring{Token: 2, Temperature: 1, Top: 3}, []float64{math.Log(0.2), 1, math.Log(0.4), 3, math.Log(0.3), 2, math.Log(0.2)}},
		{"temperature", []float32{ln(1), ln(2), ln(2), ln(4)}, ops.Scoring{Token: 3, Temperature: 0.5}, []float64{math.Log(16.0 / 25)}},
		{"the drawn token", []float32{ln(1), ln(1), ln(6), ln(2)}, ops.Scoring{Token: -1, Temperature: 1}, []float64{math.Log(0.6)}},
		{"NaN and -Inf have no share", []float32{nan, 1, -inf, 1}, ops.Scoring{Token: 1, Temperature: 1, Top: 3}, []float64{math.Log(0.5), 1, math.Log(0.5), 3, math.Log(0.5), 0, math.Inf(-1)}},
		{"+Inf takes all", []float32{0, inf, 5, 5}, ops.Scoring{Token: 1, Temperature: 1, Top: 2}, []float64{0, 1, 0, 2, math.Inf(-1)}},
	} {
		dst := r.poisoned(1, 7, ops.I32)
		next := r.i32(9, 2)
		logits := r.f32(2, 5, append([]float32{1, 1, 1, 1, 1}, append(c.logits, 50)...))
		c.scoring.Row = 1
		var l ops.List
		l.Logprobs(dst, logits, r.scorings([]ops.Scoring{c.scoring}), next, 4)
		r.run(&l)
		got := r.ints(dst)
		for i, want := range c.want {
			value := float64(math.Float32frombits(uint32(got[i])))
			if i%2 == 1 {
				value = float64(got[i])
			}
			if value != want && !(math.Abs(value-want) < 1e-6) {
				t.Errorf("%s: word %d is %v, want %v", c.what, i, value, want)
			}
		}
	}
}

func testLogprobsReference(t *testing.T, open Open) {
	const vocab, rows, top = 3001, 20, 20
	scenario := func(r *rig) []int32 {
		logits := random(11, rows*vocab)
		var list []ops.Scoring
		for i := range rows {
			list = append(list, ops.Scoring{Row: int32(rows - 1 - i), Token: int32(i * 150), Top: int32(i), Temperature: 0.3 + 0.1*float32(i)})
		}
		for i := range logits {
			logits[i] *= 8
		}
		dst := r.alloc(rows, 1+2*top, ops.I32)
		var l ops.List
		l.Logprobs(dst, r.f32(rows, vocab, logits), r.scorings(list), ops.Tensor{}, vocab)
		r.run(&l)
		return r.ints(dst)
	}
	got, want := scenario(newRig(t, open)), scenario(newRef(t))
	for i := range want {
		column := i % (1 + 2*top)
		g, w := math.Float32frombits(uint32(got[i])), math.Float32frombits(uint32(want[i]))
		if column > 0 && column%2 == 1 {
			if got[i] != want[i] {
				t.Fatalf("row %d, column %d: token %d, want %d", i/(1+2*top), column, got[i], want[i])
			}
		} else if math.Abs(float64(g-w)) > 2e-5*math.Max(1, math.Abs(float64(w))) {
			t.Fatalf("row %d, column %d: %v, want %v", i/(1+2*top), column, g, w)
		}
	}
}

// badLogitOps are operations on logits that a device must refuse.
func badLogitOps() []badOp {
	adjust := func(a ops.Adjustment, data ...int32) func(r *rig) ops.Op {
		return func(r *rig) ops.Op {
			a.Repetition = 1
			return recorded(func(l *ops.List) {
				l.Adjust(r.alloc(2, 8, ops.F32), r.adjustments([]ops.Adjustment{a}), r.i32(data...), r.i32(0, 0), 8)
			})
		}
	}
	score := func(s ops.Scoring) func(r *rig) ops.Op {
		return func(r *rig) ops.Op {
			return recorded(func(l *ops.List) {
				l.Logprobs(r.alloc(1, 3, ops.I32), r.alloc(2, 8, ops.F32), r.scorings([]ops.Scoring{s}), ops.Tensor{}, 8)
			})
		}
	}
	mask := func(row int32, change func(*ops.Op)) func(r *rig) ops.Op {
		return func(r *rig) ops.Op {
			op := recorded(func(l *ops.List) { l.Mask(r.alloc(2, 40, ops.F32), r.i32(row), r.words(1, 2, []int32{1, 1}), 40) })
			change(&op)
			return op
		}
	}
	return []badOp{
		{"mask, row beyond the logits", mask(2, func(*ops.Op) {})},
		{"mask, row before the logits", mask(-1, func(*ops.Op) {})},
		{"mask, too few bits", mask(0, func(op *ops.Op) { op.T[2].Cols = 1 })},
		{"mask, fewer bits than rows", mask(0, func(op *ops.Op) { op.T[2].Rows = 0 })},
		{"mask, vocabulary beyond the logits", mask(0, func(op *ops.Op) { op.I[0] = 41 })},
		{"adjust, row beyond the logits", adjust(ops.Adjustment{Row: 2}, 0)},
		{"adjust, output beyond the vocabulary", adjust(ops.Adjustment{Outputs: 1}, 8)},
		{"adjust, slot beyond the last tokens", adjust(ops.Adjustment{Outputs: 1}, -3)},
		{"adjust, biased token beyond the vocabulary", adjust(ops.Adjustment{Biases: 1}, 8, 0)},
		{"adjust, data beyond the end", adjust(ops.Adjustment{Outputs: 1, Biases: 1}, 0, 0)},
		{"adjust, data before the beginning", adjust(ops.Adjustment{First: -1, Outputs: 1}, 0, 0)},
		{"logprobs, row beyond the logits", score(ops.Scoring{Row: 2, Temperature: 1})},
		{"logprobs, token beyond the vocabulary", score(ops.Scoring{Token: 8, Temperature: 1})},
		{"logprobs, no drawn token", score(ops.Scoring{Token: -1, Temperature: 1})},
		{"logprobs, more than there is room for", score(ops.Scoring{Top: 2, Temperature: 1})},
		{"logprobs, temperature 0", score(ops.Scoring{})},
	}
}

package devicetest

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

func testSample(t *testing.T, open Open) {
	t.Run("greedy", func(t *testing.T) { testGreedy(t, open) })
	t.Run("random_numbers", func(t *testing.T) { testRandomNumbers(t, open) })
	t.Run("slots", func(t *testing.T) { testSlots(t, open) })
	t.Run("filters", func(t *testing.T) { testFilters(t, open) })
	t.Run("distribution", func(t *testing.T) { testDistribution(t, open) })
	t.Run("reference", func(t *testing.T) { testSampleReference(t, open) })
}

// sampled runs Sample on rows of logits.
func (r *rig) sampled(vocab int, logits [][]float32, args []ops.Sampling) []int32 {
	r.t.Helper()
	var flat []float32
	for _, row := range logits {
		flat = append(flat, row...)
	}
	next := r.poisoned(1, len(logits), ops.I32)
	var l ops.List
	l.Sample(next, r.f32(len(logits), len(logits[0]), flat), r.sampling(args), ops.Tensor{}, vocab)
	r.run(&l)
	return r.ints(next)
}

func (r *rig) sampling(args []ops.Sampling) ops.Tensor {
	r.t.Helper()
	var words []int32
	for _, a := range args {
		words = append(words, int32(math.Float32bits(a.Temperature)), int32(math.Float32bits(a.TopP)),
			int32(math.Float32bits(a.MinP)), a.TopK, int32(a.SeedLo), int32(a.SeedHi), int32(a.Position), a.Slot)
	}
	tensor := r.i32(words...)
	tensor.Rows, tensor.Cols, tensor.Stride = int32(len(args)), ops.SamplingWords, ops.SamplingWords
	return tensor
}

func testGreedy(t *testing.T, open Open) {
	r := newRig(t, open)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		what   string
		logits []float32
		vocab  int
		want   int32
	}{
		{"the largest", []float32{1, 3, 2}, 3, 1},
		{"the first of equals", []float32{1, 3, 3, 3}, 4, 1},
		{"inside the vocabulary", []float32{1, 2, 9, 9}, 2, 1},
		{"not a NaN", []float32{nan, 1, nan, 2}, 4, 3},
		{"all NaN", []float32{nan, nan}, 2, 0},
		{"all -Inf", []float32{-inf, -inf}, 2, 0},
		{"+Inf", []float32{1, inf, inf, 2}, 4, 1},
		{"negative", []float32{-5, -3, -4}, 3, 1},
	} {
		if got := r.sampled(c.vocab, [][]float32{c.logits}, []ops.Sampling{{Slot: -1}}); got[0] != c.want {
			t.Errorf("%s: token %d, want %d", c.what, got[0], c.want)
		}
	}
	for _, n := range []int{1, 15, 16, 17, 33, 1000, 49157} {
		logits := random(uint64(n), n)
		want := slices.Index(logits, slices.Max(logits))
		if got := r.sampled(n, [][]float32{logits}, []ops.Sampling{{Slot: -1}}); int(got[0]) != want {
			t.Errorf("%d logits: token %d, want %d", n, got[0], want)
		}
	}
	// With odd logits a drawn token must be defined too.
	warm := []ops.Sampling{{Temperature: 1, TopP: 0.9, TopK: 2, Slot: -1}}
	for _, row := range [][]float32{{nan, 1, nan}, {nan, inf, 3}, {nan, -inf, 0}} {
		if got := r.sampled(3, [][]float32{row}, warm); got[0] < 0 || got[0] > 2 || row[got[0]] != row[got[0]] {
			t.Errorf("%v: token %d", row, got[0])
		}
	}
}

// All weights equal 2¹⁶ times: the token is the upper half of the random word.
// The words are Random123's philox4x32_10 at counter (position, 0, 0, 0); the
// first is its known-answer vector for a zero key and counter.
func testRandomNumbers(t *testing.T, open Open) {
	r := newRig(t, open)
	logits := make([]float32, 1<<16)
	for _, c := range []struct {
		lo, hi, position, word uint32
	}{
		{0, 0, 0, 0x6627e8d5},
		{0xffffffff, 0xffffffff, 0xffffffff, philoxWord(0xffffffff, 0xffffffff, 0xffffffff)},
		{0xa4093822, 0x299f31d0, 0x243f6a88, philoxWord(0xa4093822, 0x299f31d0, 0x243f6a88)},
		{1, 2, 3, philoxWord(1, 2, 3)},
	} {
		args := []ops.Sampling{{Temperature: 1, TopP: 1, SeedLo: c.lo, SeedHi: c.hi, Position: c.position, Slot: -1}}
		if got := r.sampled(len(logits), [][]float32{logits}, args); uint32(got[0]) != c.word>>16 {
			t.Errorf("seed %#x %#x, position %d: token %#x, want %#x", c.lo, c.hi, c.position, got[0], c.word>>16)
		}
	}
}

// philoxWord is written down anew from the paper, in its own words: R rounds of a
// bijection keyed by Weyl sequences.
func philoxWord(keyLo, keyHi, counter uint32) uint32 {
	x := [4]uint64{uint64(counter)}
	k := [2]uint64{uint64(keyLo), uint64(keyHi)}
	const mask = 1<<32 - 1
	for range 10 {
		p0, p1 := x[0]*0xD2511F53, x[2]*0xCD9E8D57
		x = [4]uint64{p1>>32 ^ x[1] ^ k[0], p1 & mask, p0>>32 ^ x[3] ^ k[1], p0 & mask}
		k[0], k[1] = (k[0]+0x9E3779B9)&mask, (k[1]+0xBB67AE85)&mask
	}
	return uint32(x[0])
}

func testSlots(t *testing.T, open Open) {
	r := newRig(t, open)
	last := r.i32(100, 101, 102, 103)
	next := r.poisoned(1, 3, ops.I32)
	var l ops.List
	l.Sample(next, r.f32(3, 4, []float32{0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0}),
		r.sampling([]ops.Sampling{{Slot: 2}, {Slot: -1}, {Slot: 0}}), last, 4)
	// The next batch reads them in the same list.
	dst := r.poisoned(2, 1, ops.F32)
	l.Embed(dst, r.weight(4, 1, ops.F32, []float32{10, 11, 12, 13}), r.i32(-3, -1), last, 0)
	r.run(&l)
	if got, want := r.ints(last), []int32{0, 101, 1, 103}; !slices.Equal(got, want) {
		t.Errorf("last tokens %v, want %v", got, want)
	}
	requireSame(t, "embedded", r.floats(dst), []float32{11, 10})
}

// allowed returns the probabilities of the tokens that the filters leave: the
// rule of ops.Sampling, done step by step on normalised probabilities.
func allowed(logits []float32, a ops.Sampling) []float64 {
	p := make([]float64, len(logits))
	var ids []int
	most := float64(slices.Max(logits))
	for i, x := range logits {
		p[i] = math.Exp((float64(x) - most) / float64(a.Temperature))
		ids = append(ids, i)
	}
	slices.SortStableFunc(ids, func(i, j int) int { return cmp.Compare(logits[j], logits[i]) })
	keep := func(n int) {
		ids = ids[:n]
		var sum float64
		for _, i := range ids {
			sum += p[i]
		}
		for i := range p {
			if slices.Contains(ids, i) {
				p[i] /= sum
			} else {
				p[i] = 0
			}
		}
	}
	keep(len(ids))
	if a.TopK > 0 {
		keep(min(int(a.TopK), len(ids)))
	}
	if a.TopP < 1 {
		sum, n := 0.0, 0
		for n < len(ids) && (n == 0 || sum < float64(a.TopP)) {
			sum += p[ids[n]]
			n++
		}
		keep(n)
	}
	n := 0
	for n < len(ids) && p[ids[n]] >= float64(a.MinP)*p[ids[0]] {
		n++
	}
	keep(n)
	return p
}

func filterCases() []ops.Sampling {
	return []ops.Sampling{
		{Temperature: 1, TopP: 1},
		{Temperature: 0.7, TopP: 1, TopK: 5},
		{Temperature: 1, TopP: 1, TopK: 1},
		{Temperature: 1.3, TopP: 1, TopK: 1000},
		{Temperature: 1, TopP: 0.8},
		{Temperature: 2, TopP: 0.1},
		{Temperature: 1, TopP: 0.6, TopK: 10},
		{Temperature: 1, TopP: 1, MinP: 0.2},
		{Temperature: 1.5, TopP: 0.9, TopK: 20, MinP: 0.05},
	}
}

// Only tokens that the filters leave are drawn, and all likely ones of them.
func testFilters(t *testing.T, open Open) {
	const vocab, rows = 40, 1500
	for i, a := range filterCases() {
		r := newRig(t, open)
		logits := random(uint64(i), vocab)
		logits[11], logits[3] = logits[7], logits[7] // equals
		p := allowed(logits, a)
		seen := make([]bool, vocab)
		for _, id := range r.draws(logits, a, rows) {
			if p[id] == 0 {
				t.Fatalf("%+v: token %d was filtered out", a, id)
			}
			seen[id] = true
		}
		for id := range p {
			if p[id] > 0.01 && !seen[id] {
				t.Errorf("%+v: token %d of probability %.3f was never drawn", a, id, p[id])
			}
		}
	}
}

// draws samples the same logits at many positions.
func (r *rig) draws(logits []float32, a ops.Sampling, rows int) []int32 {
	r.t.Helper()
	var all [][]float32
	var args []ops.Sampling
	for i := range rows {
		a.SeedLo, a.Position, a.Slot = 42, uint32(i), -1
		all, args = append(all, logits), append(args, a)
	}
	return r.sampled(len(logits), all, args)
}

// Pearson's chi-square test. The seeds are fixed, so it passes always or never;
// the bound is the 99.9th percentile by Wilson and Hilferty's approximation.
func testDistribution(t *testing.T, open Open) {
	const vocab, rows = 30, 6000
	for i, a := range filterCases() {
		r := newRig(t, open)
		logits := random(uint64(100+i), vocab)
		p := allowed(logits, a)
		count := make([]float64, vocab)
		for _, id := range r.draws(logits, a, rows) {
			count[id]++
		}
		var chi, rest, restCount float64
		cells := 0.0
		for id := range p {
			if p[id]*rows < 8 { // rare tokens share a cell
				rest, restCount = rest+p[id]*rows, restCount+count[id]
				continue
			}
			chi += (count[id] - p[id]*rows) * (count[id] - p[id]*rows) / (p[id] * rows)
			cells++
		}
		if rest > 1 {
			chi += (restCount - rest) * (restCount - rest) / rest
			cells++
		}
		df := cells - 1
		if df == 0 {
			continue
		}
		bound := df * math.Pow(1-2/(9*df)+3.09*math.Sqrt(2/(9*df)), 3)
		if chi > bound {
			t.Errorf("%+v: chi-square %.1f over %.0f degrees of freedom, bound %.1f", a, chi, df, bound)
		}
	}
}

// The same request gives the same token on every device, but for a random number
// that falls within rounding of the border between two tokens.
func testSampleReference(t *testing.T, open Open) {
	const vocab, rows = 3001, 60
	got, want := newRig(t, open), newRef(t)
	differ := 0
	for i, a := range append(filterCases(), ops.Sampling{Temperature: 1, TopP: 0.95, TopK: 50}) {
		logits := random(uint64(200+i), vocab)
		for j := range logits {
			logits[j] *= 3
		}
		g, w := got.draws(logits, a, rows), want.draws(logits, a, rows)
		for j := range w {
			if g[j] != w[j] {
				differ++
			}
		}
	}
	if differ > 2 {
		t.Errorf("%d tokens differ from the reference's", differ)
	}
}

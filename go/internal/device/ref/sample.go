package ref

import (
	"math"
	"math/bits"
	"slices"

	"github.com/minisgl/minisgl/go/internal/ops"
)

func (m *memory) sample(op ops.Op) {
	rows, vocab := int(op.T[1].Rows), int(op.I[0])
	logits := m.typed(op.T[1], ops.F32, rows, int(op.T[1].Cols))
	next, args := m.typed(op.T[0], ops.I32, 1, rows), m.typed(op.T[2], ops.I32, rows, ops.SamplingWords)
	require(vocab > 0 && vocab <= int(logits.Cols), "vocabulary of %d tokens, logits %v", vocab, logits.Tensor)
	for r := range rows {
		a := samplingOf(args.ints(r))
		id := draw(logits.row(r)[:vocab], a)
		next.setInt(r, id)
		if a.Slot >= 0 {
			m.typed(op.T[3], ops.I32, 1, int(op.T[3].Cols)).setInt(int(a.Slot), id)
		}
	}
}

func samplingOf(words []int) ops.Sampling {
	f := func(i int) float32 { return math.Float32frombits(uint32(words[i])) }
	return ops.Sampling{
		Temperature: f(0), TopP: f(1), MinP: f(2), TopK: int32(words[3]),
		SeedLo: uint32(words[4]), SeedHi: uint32(words[5]), Position: uint32(words[6]), Slot: int32(words[7]),
	}
}

// candidate is a token with its weight: its probability times a constant.
type candidate struct {
	id     int
	logit  float32
	weight float64
}

// draw samples a token. A NaN counts as -Inf.
func draw(logits []float32, a ops.Sampling) int {
	c := make([]candidate, len(logits))
	for id, x := range logits {
		if x != x {
			x = float32(math.Inf(-1))
		}
		c[id] = candidate{id: id, logit: x}
	}
	// Descending, and among equals the smaller id first.
	slices.SortStableFunc(c, func(a, b candidate) int {
		switch {
		case a.logit > b.logit:
			return -1
		case a.logit < b.logit:
			return 1
		}
		return 0
	})
	if !(a.Temperature > 0) {
		return c[0].id
	}
	for i := range c {
		c[i].weight = 1
		if c[i].logit != c[0].logit { // the difference of two infinities is not a number
			c[i].weight = math.Exp((float64(c[i].logit) - float64(c[0].logit)) / float64(a.Temperature))
		}
	}
	c = filter(c, a)
	slices.SortFunc(c, func(a, b candidate) int { return a.id - b.id })
	return invert(c, float64(philox([4]uint32{a.Position}, [2]uint32{a.SeedLo, a.SeedHi})[0])/(1<<32))
}

// filter applies top-k, top-p to what is left, then min-p. c is in descending order.
func filter(c []candidate, a ops.Sampling) []candidate {
	if a.TopK > 0 && int(a.TopK) < len(c) {
		c = c[:a.TopK]
	}
	if a.TopP < 1 {
		target, sum, n := float64(a.TopP)*total(c), 0.0, 0
		for n == 0 || n < len(c) && sum < target {
			sum += c[n].weight
			n++
		}
		c = c[:n]
	}
	if a.MinP > 0 {
		least := min(float64(a.MinP), 1) * c[0].weight
		c = slices.DeleteFunc(c, func(x candidate) bool { return x.weight < least })
	}
	return c
}

func total(c []candidate) float64 {
	var sum float64
	for _, x := range c {
		sum += x.weight
	}
	return sum
}

// invert returns the first token, in order of id, whose cumulated weight exceeds
// u times the whole; u is in [0, 1).
func invert(c []candidate, u float64) int {
	target, sum, last := u*total(c), 0.0, c[0].id
	for _, x := range c {
		if x.weight == 0 {
			continue
		}
		last = x.id
		if sum += x.weight; sum > target {
			break
		}
	}
	return last
}

// philox is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011).
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xD2511F53, ctr[0])
		hi1, lo1 := bits.Mul32(0xCD9E8D57, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return ctr
}

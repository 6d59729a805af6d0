package model

import (
	"fmt"
	"slices"
)

// Shard is one rank's part of a model that several devices hold together. The
// zero value is the whole.
//
// Every projection is split by its outputs, and every rank computes its outputs
// from the whole input; the outputs are gathered. (The usual way splits every
// second projection by its inputs and adds up partial results, which saves half
// of the exchanges; but a sum of parts rounds otherwise than one chain, so the
// tokens would depend on the number of ranks.) Key and value heads are split, or
// repeated where there are fewer than ranks; embeddings and experts are whole on
// every rank.
type Shard struct{ Rank, Size int }

// CheckShards reports why a model can't be split over n ranks.
func (c Config) CheckShards(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("model: %d ranks; there must be at least 1", n)
	case c.Heads%n != 0:
		return fmt.Errorf("model: %d query heads can't be split over %d ranks", c.Heads, n)
	case c.KVHeads%n != 0 && n%c.KVHeads != 0:
		return fmt.Errorf("model: %d key and value heads can be neither split over %d ranks nor repeated", c.KVHeads, n)
	case n > min(c.HiddenSize, c.IntermediateSize, c.VocabSize):
		return fmt.Errorf("model: %d ranks are more than its smallest layer has outputs", n)
	}
	return nil
}

func (s Shard) size() int { return max(1, s.Size) }

// span is the rank's share of n outputs: the first one and how many.
func (s Shard) span(n int) (first, count int) {
	first = s.Rank * n / s.size()
	return first, (s.Rank+1)*n/s.size() - first
}

// part is the rank's share of a tensor's n rows.
func (s Shard) part(name string, n int) Part {
	first, count := s.span(n)
	return Part{Name: name, Rows: count, First: first, Of: n}
}

// rankHeads are the heads of a rank: how many, and the first of either kind.
func (c Config) rankHeads() (q, kv, firstQ, firstKV int) {
	firstQ, q = c.Shard.span(c.Heads)
	if n := c.Shard.size(); c.KVHeads < n {
		return q, 1, firstQ, c.Shard.Rank * c.KVHeads / n
	}
	firstKV, kv = c.Shard.span(c.KVHeads)
	return q, kv, firstQ, firstKV
}

// RankKVHeads is the number of key and value heads whose cache a rank holds.
func (c Config) RankKVHeads() int {
	_, kv, _, _ := c.rankHeads()
	return kv
}

// qkvParts are the rank's rows of the query, key and value projections, or of
// their biases: of three tensors, or of one that holds them one after the other.
func (c Config) qkvParts(fused bool, prefix, suffix string) []Part {
	q, kv, firstQ, firstKV := c.rankHeads()
	d, allQ, allKV := c.HeadDim, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	parts := []Part{
		{Name: prefix + "q_proj" + suffix, Rows: q * d, First: firstQ * d, Of: allQ},
		{Name: prefix + "k_proj" + suffix, Rows: kv * d, First: firstKV * d, Of: allKV},
		{Name: prefix + "v_proj" + suffix, Rows: kv * d, First: firstKV * d, Of: allKV},
	}
	if fused {
		parts[1].First += allQ
		parts[2].First += allQ + allKV
		for i := range parts {
			parts[i].Name, parts[i].Of = prefix+"qkv_proj"+suffix, allQ+2*allKV
		}
	}
	return slices.Concat(c.rotaryOrder(parts[0]), c.rotaryOrder(parts[1]), parts[2:])
}

// rotaryOrder puts the rows of heads, of queries or keys, in the order that
// ops.RopeStore rotates: element i with i + HeadDim/2. Where only the first Dim
// elements of a head rotate, i with i + Dim/2, the rest is split in two so that
// each rotating pair has that distance; attention adds up over a head's elements,
// in whatever order queries and keys have them.
func (c Config) rotaryOrder(heads Part) []Part {
	turning := c.Ropes[0].Dim / 2
	still := c.HeadDim/2 - turning
	if still == 0 {
		return []Part{heads}
	}
	var parts []Part
	add := func(first, rows int) {
		parts = append(parts, Part{Name: heads.Name, Rows: rows, First: first, Of: heads.Of})
	}
	for first := heads.First; first < heads.First+heads.Rows; first += c.HeadDim {
		add(first, turning)
		add(first+2*turning, still)
		add(first+turning, turning)
		add(first+2*turning+still, still)
	}
	return parts
}

// gateUpParts are the rank's rows of the gate and up projections, likewise.
func (c Config) gateUpParts(fused bool, prefix, suffix string) []Part {
	n := c.IntermediateSize
	parts := []Part{c.Shard.part(prefix+"gate_proj"+suffix, n), c.Shard.part(prefix+"up_proj"+suffix, n)}
	if fused {
		parts[1].First += n
		for i := range parts {
			parts[i].Name, parts[i].Of = prefix+"gate_up_proj"+suffix, 2*n
		}
	}
	return parts
}

package numpyrand

import (
	"fmt"
	"math"
	"math/bits"
)

// Numpy is the state behind numpy.random's functions after numpy.random.seed.
type Numpy struct{ t twister }

// NewNumpy is numpy.random.seed(seed).
func NewNumpy(seed uint32) *Numpy {
	n := &Numpy{}
	n.t.init(seed)
	return n
}

// RandInt is numpy.random.randint(low, high, size=count) for ranges below 2^32:
// 32-bit draws, masked to the next power of two and rejected above the range.
func (n *Numpy) RandInt(low, high, count int) ([]int, error) {
	if low >= high || uint64(high)-uint64(low)-1 >= math.MaxUint32 {
		return nil, fmt.Errorf("numpyrand: range [%d, %d) is empty or has more than 2^32-1 values", low, high)
	}
	span := uint32(high - low - 1)
	mask := uint32(uint64(1)<<bits.Len32(span) - 1)
	out := make([]int, count)
	for i := range out {
		out[i] = low
		if span > 0 {
			out[i] += int(n.masked(span, mask))
		}
	}
	return out, nil
}

func (n *Numpy) masked(span, mask uint32) uint32 {
	for {
		if v := n.t.uint32() & mask; v <= span {
			return v
		}
	}
}

// Float64 is numpy.random.random_sample().
func (n *Numpy) Float64() float64 { return n.t.float64() }

// Exponential is numpy.random.exponential(scale).
func (n *Numpy) Exponential(scale float64) float64 { return -scale * math.Log(1-n.t.float64()) }

// Python is the state behind Python's random module after random.seed.
type Python struct{ t twister }

// NewPython is random.seed(seed) for an integer seed.
func NewPython(seed uint64) *Python {
	key := []uint32{uint32(seed)}
	if high := uint32(seed >> 32); high != 0 {
		key = append(key, high)
	}
	p := &Python{}
	p.t.initArray(key)
	return p
}

// Float64 is random.random().
func (p *Python) Float64() float64 { return p.t.float64() }

// Below is random.randrange(n), for n from 1 to 2^31.
func (p *Python) Below(n int) int {
	k := bits.Len32(uint32(n))
	for {
		if v := int(p.t.uint32() >> (32 - k)); v < n {
			return v
		}
	}
}

// Choices is random.choices(range(n), k=count).
func (p *Python) Choices(n, count int) []int {
	out := make([]int, count)
	for i := range out {
		out[i] = int(math.Floor(p.t.float64() * float64(n)))
	}
	return out
}

// Shuffle is random.shuffle(x) for the slice x.
func Shuffle[T any](p *Python, x []T) {
	for i := len(x) - 1; i > 0; i-- {
		j := p.Below(i + 1)
		x[i], x[j] = x[j], x[i]
	}
}

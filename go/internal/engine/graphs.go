package engine

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
)

// A device may launch a list that has come before as a graph, in one call. For lists to
// come again, batches that decode are padded to one of a few sizes, and page tables
// have one of a few widths. Both are run once when the engine starts.

// graphPositions is how many positions the narrowest page table spans where there are
// graphs: most sequences fit, so their lists repeat while they grow.
const graphPositions = 2048

// GraphSizes are numbers of requests for which to have graphs: 1, 2, 4, multiples of 8,
// and most, the largest.
func GraphSizes(most int) []int {
	var sizes []int
	for _, n := range []int{1, 2, 4} {
		if n < most {
			sizes = append(sizes, n)
		}
	}
	for n := 8; n < most; n += 8 {
		sizes = append(sizes, n)
	}
	if most > 0 {
		sizes = append(sizes, most)
	}
	return sizes
}

// graphSizes are the sizes that a batch can have, ascending.
func (c Config) graphSizes() []int {
	var sizes []int
	for _, n := range c.GraphSizes {
		sizes = append(sizes, min(n, c.MaxRunning))
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// padded is the number of requests that a batch of n decoding ones is padded to: n
// itself where no graph is so large.
func padded(sizes []int, n int) int {
	if i, _ := slices.BinarySearch(sizes, n); i < len(sizes) {
		return sizes[i]
	}
	return n
}

// tableWidth is the width of a page table for sequences of so many pages: a power of two,
// at least `least`, at most `most`.
func tableWidth(pages, least, most int) int {
	return min(1<<bits.Len(uint(max(pages, least, 1)-1)), most)
}

// decodes reports whether each request of a batch computes one position and samples
// after it.
func decodes(b *core.Batch) bool {
	return b.Phase == core.Decode && b.Tokens == len(b.Seqs) && len(b.Seqs) > 0
}

// nobody is the request of rows that are padding: one position on the page behind
// those that requests have.
func nobody(page int) *core.Req {
	return &core.Req{Params: core.DefaultSampling(), IDs: []int32{0}, PromptLen: 1, MaxLen: 2, Pages: []core.Page{core.Page(page)}, Slot: -1}
}

// makeGraphs runs a batch of each size that there is a graph for, twice with either set
// of inputs: what comes the second time, the device captures. The largest are first, so
// that the smaller ones find all memory there.
func (e *Engine) makeGraphs() error {
	for _, n := range slices.Backward(e.cfg.graphSizes()) {
		b := &core.Batch{Phase: core.Decode, Tokens: n}
		for range n {
			b.Seqs = append(b.Seqs, core.Seq{Req: nobody(e.cfg.NumPages), End: 1, Sample: true})
		}
		for range 2 * len(e.lists) {
			if err := e.Submit(b); err != nil {
				return fmt.Errorf("engine: making graphs: %w", err)
			}
			if _, err := e.Wait(); err != nil {
				return fmt.Errorf("engine: making graphs: %w", err)
			}
		}
	}
	return nil
}

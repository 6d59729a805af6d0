package engine

import (
	"fmt"
	"math"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
)

// ownMemory is a device with memory of its own.
type ownMemory interface {
	// FreeMemory returns how many bytes are free.
	FreeMemory() (int64, error)
}

// freeOf returns the free bytes of a device's own memory; 0 if it has none.
func freeOf(dev device.Device) (int64, error) {
	own, ok := dev.(ownMemory)
	if !ok {
		return 0, nil
	}
	return own.FreeMemory()
}

// prepare makes the engine ready to run: on devices with memory of their own it lets
// the largest batch run, and chooses the number of pages by what that leaves if the
// configuration has none; then it allocates the KV cache and makes graphs.
func (e *Engine) prepare() error {
	if _, own := e.ranks[0].dev.(ownMemory); own {
		if err := e.warmUp(); err != nil {
			return err
		}
	}
	if e.cfg.NumPages == 0 {
		if err := e.choosePages(); err != nil {
			return err
		}
	}
	for _, r := range e.ranks {
		if err := r.allocateCache(e.cfg); err != nil {
			return err
		}
	}
	return e.makeGraphs()
}

// warmUp runs the largest batch, on a cache of one page that all layers share: the
// device has then taken all the memory that a batch can need.
func (e *Engine) warmUp() error {
	for _, r := range e.ranks {
		if err := r.shareOnePage(); err != nil {
			return err
		}
	}
	err := e.Submit(e.cfg.largestBatch())
	if err == nil {
		_, err = e.Wait()
	}
	if err != nil {
		return fmt.Errorf("a batch of max_extend_tokens (%d) for max_running_req (%d) requests does not run: %w", e.cfg.MaxExtendTokens, e.cfg.MaxRunning, err)
	}
	return nil
}

// largestBatch is the batch that needs the most memory: as many prompt tokens, requests
// and guesses as there may be, and one sequence that fills its row of the page table. All
// that it computes goes to page 0.
func (c Config) largestBatch() *core.Batch {
	req := nobody(0)
	req.Pages = make([]core.Page, c.pagesOf(c.MaxSeqLen))
	b := &core.Batch{Phase: core.Prefill}
	add := func(seq core.Seq) {
		seq.Req, seq.Sample = req, true
		b.Seqs, b.Tokens = append(b.Seqs, seq), b.Tokens+seq.ExtendLen()
	}
	for left := c.MaxExtendTokens; left > 0 && len(b.Seqs) < c.MaxRunning; left -= min(left, c.MaxSeqLen) {
		add(core.Seq{End: min(left, c.MaxSeqLen)})
	}
	longest := core.Seq{Start: c.MaxSeqLen - 1, End: c.MaxSeqLen}
	for len(b.Seqs) < c.MaxRunning {
		add(longest)
		longest = core.Seq{End: 1}
	}
	if last := &b.Seqs[len(b.Seqs)-1]; c.MaxDraft > 0 && last.Start == 0 && last.End+c.MaxDraft <= c.MaxSeqLen {
		last.Draft, last.End = make([]int32, c.MaxDraft), last.End+c.MaxDraft
		b.Tokens += c.MaxDraft
	}
	return b
}

// choosePages sets the number of pages to what MemoryRatio of each device's memory, as
// it was before the weights, has room for now.
func (e *Engine) choosePages() error {
	pages := int64(math.MaxInt64)
	for i, r := range e.ranks {
		left, err := freeOf(r.dev)
		if err != nil {
			return err
		}
		room := int64(e.cfg.MemoryRatio*float64(r.free)) - (r.free - left)
		page := r.pageBytes(e.cfg.PageSize)
		n := room/page - int64(e.cfg.sparePages())
		if n < 2 {
			return fmt.Errorf("engine: of the %d MiB of memory of rank %d's device that were free, weights took %d and the largest batch %d; memory_ratio %v of it leaves %d MiB for KV pages of %d bytes: raise memory_ratio, lower max_extend_tokens or max_running_req, quantize, or choose a smaller model",
				r.free>>20, i, (r.free-r.loaded)>>20, (r.loaded-left)>>20, e.cfg.MemoryRatio, max(room, 0)>>20, page)
		}
		pages = min(pages, n)
	}
	e.pagesBound = fmt.Sprintf("memory_ratio %v of %d MiB free memory, less %d for weights and the largest batch", e.cfg.MemoryRatio,
		e.ranks[0].free>>20, (e.ranks[0].free-e.ranks[0].loaded)>>20)
	if useful := e.cfg.usefulPages(); pages >= useful {
		pages, e.pagesBound = useful, usefulBound
	}
	e.cfg.NumPages = int(pages)
	return nil
}

// pageBytes is the size of a KV page of the rank's heads over all layers.
func (r *rank) pageBytes(pageSize int) int64 {
	return int64(2*len(r.kv)*r.cacheCols*pageSize) * int64(r.cfg.KVDType.Size())
}

// shareOnePage gives all layers one cache of one page.
func (r *rank) shareOnePage() error {
	a := &allocator{dev: r.dev}
	cache := r.newCache(a, 1)
	for i := range r.kv {
		r.kv[i] = cache
	}
	return a.err
}

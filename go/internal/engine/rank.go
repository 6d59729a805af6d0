package engine

import (
	"cmp"
	"fmt"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// rank is what one device holds of a model: its weights, its heads' KV cache,
// activations and inputs.
type rank struct {
	cfg       Config
	dev       device.Device
	model     model.Model
	ropes     []ops.Tensor // tables of the model's rotary embeddings
	kv        []model.Cache
	populate  *populater // of kv
	cacheCols int        // of a layer's keys, and of its values
	scratch   *model.Scratch
	last      ops.Tensor
	sets      [2]*inputs // one is filled while the other is in use

	free, loaded int64 // bytes of the device's own memory that were free before and after the weights were loaded
}

// newRank loads the weights and allocates what batches need, all but the KV cache.
func newRank(cfg Config, mc model.Config, ld *loader) (r *rank, err error) {
	r = &rank{cfg: cfg, dev: ld.dev, kv: make([]model.Cache, mc.Layers), cacheCols: ops.CacheCols(cfg.KVDType, mc.RankKVHeads(), mc.HeadDim)}
	if r.free, err = freeOf(r.dev); err != nil {
		return nil, err
	}
	if r.model, err = model.New(mc, ld); err != nil {
		return nil, err
	}
	if ld.err != nil {
		return nil, ld.err
	}
	if r.loaded, err = freeOf(r.dev); err != nil {
		return nil, err
	}
	return r, r.allocate(mc)
}

// allocate makes the activations, the inputs and the rotary tables.
func (r *rank) allocate(mc model.Config) error {
	a, cfg := &allocator{dev: r.dev}, r.cfg
	rows := cfg.maxRows()
	r.scratch = model.NewScratch(mc, rows, cfg.maxSamples(), func(r, c int) ops.Tensor { return a.tensor(r, c, ops.F32) })
	for range mc.Ropes {
		r.ropes = append(r.ropes, a.tensor(cfg.MaxSeqLen, mc.HeadDim, ops.F32))
	}
	r.last = a.tensor(1, cfg.MaxRunning, ops.I32)
	for i := range r.sets {
		r.sets[i] = newInputs(a, cfg, rows)
	}
	if a.err != nil {
		return a.err
	}
	for i, rope := range mc.Ropes {
		if err := r.dev.Write(r.ropes[i].Addr, ops.Bytes(ropeTable(rope, cfg.MaxSeqLen, cmp.Or(cfg.RopeLength, cfg.MaxSeqLen), mc.HeadDim))); err != nil {
			return fmt.Errorf("engine: writing the rotary table: %w", err)
		}
	}
	return nil
}

// allocateCache makes the KV cache, and lets batches be padded to the sizes of graphs.
func (r *rank) allocateCache(cfg Config) error {
	a := &allocator{dev: r.dev}
	for i := range r.kv {
		r.kv[i] = r.newCache(a, cfg.NumPages+cfg.sparePages())
	}
	if a.err == nil {
		r.populate = newPopulater(r)
	}
	for _, in := range r.sets {
		in.padTo(cfg.graphSizes(), cfg)
	}
	return a.err
}

// newCache makes the cache of a layer.
func (r *rank) newCache(a *allocator, pages int) model.Cache {
	rows := pages * r.cfg.PageSize
	return model.Cache{K: a.tensor(rows, r.cacheCols, r.cfg.KVDType), V: a.tensor(rows, r.cacheCols, r.cfg.KVDType)}
}

// maxSamples is the largest number of tokens that a batch gives: one for each
// running request, and beside them one for each guess.
func (c Config) maxSamples() int { return c.MaxRunning + c.MaxDraft }

// maxRows is the largest number of tokens of a batch: prompt tokens, and beside
// them those of decoding requests.
func (c Config) maxRows() int {
	if c.NumPages == 0 { // not chosen yet
		return c.MaxExtendTokens + c.maxSamples()
	}
	return min(c.MaxExtendTokens, c.NumPages*c.PageSize) + c.maxSamples()
}

// pagesOf is the number of pages of a sequence.
func (c Config) pagesOf(tokens int) int { return (tokens + c.PageSize - 1) / c.PageSize }

// sparePages is the number of pages behind those that requests have: one for padding.
func (c Config) sparePages() int { return min(len(c.GraphSizes), 1) }

// record lets the model record its operations for the filled inputs, and what
// becomes of its logits: first those of the prompts' tokens, a block at a time,
// then the sampling, unless it has to wait for masks.
func (r *rank) record(in *inputs) {
	logits := r.forward(in)
	for i := range in.logits.blocks() {
		if i > 0 {
			logits = r.model.Logits(&in.list, in.logits.rowsOf(i), r.scratch)
		}
		in.logits.recordPrompt(&in.list, logits, i, r.cfg.Vocab)
	}
	if in.samples == 0 {
		return
	}
	if in.logits.blocks() > 0 {
		logits = r.model.Logits(&in.list, ops.New(in.logitRows.tensor.Addr, 1, len(in.logitRows.host), ops.I32), r.scratch)
	}
	in.drawn = logits
	if !in.masks.any() {
		r.recordDraw(in, &in.list)
	}
}

// recordDraw records the sampling.
func (r *rank) recordDraw(in *inputs, l *ops.List) {
	n := len(in.logitRows.host)
	next := ops.New(in.next.Addr, 1, n, ops.I32)
	in.logits.recordAdjust(l, in.drawn, r.last, r.cfg.Vocab)
	in.masks.record(l, in.drawn)
	l.Sample(next, in.drawn, in.sampling.tensor.Head(n), r.last, r.cfg.Vocab)
	in.logits.recordSamples(l, in.drawn, next, r.cfg.Vocab)
}

// forward records the model's operations and returns its logits.
func (r *rank) forward(in *inputs) ops.Tensor {
	in.list.Reset()
	in.model = in.view(r.ropes, r.last, r.cfg.PageSize)
	return r.model.Forward(&in.list, &in.model, r.kv, r.scratch)
}

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
	cfg     Config
	dev     device.Device
	model   model.Model
	ropes   []ops.Tensor // tables of the model's rotary embeddings
	kv      []model.Cache
	scratch *model.Scratch
	last    ops.Tensor
	sets    [2]*inputs // one is filled while the other is in use
}

func newRank(cfg Config, mc model.Config, ld *loader) (*rank, error) {
	m, err := model.New(mc, ld)
	if err != nil {
		return nil, err
	}
	if ld.err != nil {
		return nil, ld.err
	}
	r := &rank{cfg: cfg, dev: ld.dev, model: m}
	a := &allocator{dev: ld.dev}
	rows, width := cfg.maxRows(), ops.CacheCols(cfg.KVDType, mc.RankKVHeads(), mc.HeadDim)
	for range mc.Layers {
		r.kv = append(r.kv, model.Cache{
			K: a.tensor(cfg.NumPages*cfg.PageSize, width, cfg.KVDType),
			V: a.tensor(cfg.NumPages*cfg.PageSize, width, cfg.KVDType),
		})
	}
	r.scratch = model.NewScratch(mc, rows, cfg.maxSamples(), func(r, c int) ops.Tensor { return a.tensor(r, c, ops.F32) })
	for range mc.Ropes {
		r.ropes = append(r.ropes, a.tensor(cfg.MaxSeqLen, mc.HeadDim, ops.F32))
	}
	r.last = a.tensor(1, cfg.MaxRunning, ops.I32)
	for i := range r.sets {
		r.sets[i] = newInputs(a, cfg, rows)
	}
	if a.err != nil {
		return nil, a.err
	}
	for i, rope := range mc.Ropes {
		if err := r.dev.Write(r.ropes[i].Addr, ops.Bytes(ropeTable(rope, cfg.MaxSeqLen, cmp.Or(cfg.RopeLength, cfg.MaxSeqLen), mc.HeadDim))); err != nil {
			return nil, fmt.Errorf("engine: writing the rotary table: %w", err)
		}
	}
	return r, nil
}

// maxSamples is the largest number of tokens that a batch gives: one for each
// running request, and beside them one for each guess.
func (c Config) maxSamples() int { return c.MaxRunning + c.MaxDraft }

// maxRows is the largest number of tokens of a batch: prompt tokens, and beside
// them those of decoding requests.
func (c Config) maxRows() int {
	return min(c.MaxExtendTokens, c.NumPages*c.PageSize) + c.maxSamples()
}

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
		logits = r.model.Logits(&in.list, ops.New(in.logitRows.tensor.Addr, 1, in.samples, ops.I32), r.scratch)
	}
	in.drawn = logits
	if !in.masks.any() {
		r.recordDraw(in, &in.list)
	}
}

// recordDraw records the sampling.
func (r *rank) recordDraw(in *inputs, l *ops.List) {
	next := ops.New(in.next.Addr, 1, in.samples, ops.I32)
	in.logits.recordAdjust(l, in.drawn, r.last, r.cfg.Vocab)
	in.masks.record(l, in.drawn)
	l.Sample(next, in.drawn, in.sampling.tensor.Head(in.samples), r.last, r.cfg.Vocab)
	in.logits.recordSamples(l, in.drawn, next, r.cfg.Vocab)
}

// forward records the model's operations and returns its logits.
func (r *rank) forward(in *inputs) ops.Tensor {
	in.list.Reset()
	in.model = in.view(r.ropes, r.last, r.cfg.PageSize)
	return r.model.Forward(&in.list, &in.model, r.kv, r.scratch)
}

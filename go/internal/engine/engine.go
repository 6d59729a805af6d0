// Package engine runs batches: it owns the device, the model, the KV cache and
// the activations, turns a batch into input tensors, lets the model record its
// operations and submits them. It never sees a queue.
package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// Config sizes an engine.
type Config struct {
	DType           ops.DType // of weights and KV
	PageSize        int
	NumPages        int
	MaxRunning      int // requests of a batch; rows of the table of last tokens
	MaxExtendTokens int // tokens of a prefill batch
	MaxSeqLen       int
	Vocab           int // ids below it have a token; at most the model's vocab_size
}

// Engine runs one model on one device. It is not safe for concurrent use.
type Engine struct {
	cfg     Config
	dev     device.Device
	model   model.Model
	ropes   []ops.Tensor // tables of the model's rotary embeddings
	kv      []model.Cache
	scratch *model.Scratch
	last    ops.Tensor
	sets    [2]*inputs // one is filled while the other is in use
	at      int        // the set that the next Submit fills
	flying  []*inputs  // submitted, in order
	used    map[string]bool
}

// New builds the model on dev with weights from the source and allocates what a
// largest batch needs.
func New(cfg Config, mc model.Config, src Source, dev device.Device) (*Engine, error) {
	ld := &loader{src: src, dev: dev, dtype: cfg.DType, used: make(map[string]bool)}
	m, err := model.New(mc, ld)
	if err != nil {
		return nil, err
	}
	if ld.err != nil {
		return nil, ld.err
	}
	e := &Engine{cfg: cfg, dev: dev, model: m, used: ld.used}
	a := &allocator{dev: dev}
	rows := e.maxRows()
	for range mc.Layers {
		width := mc.KVHeads * mc.HeadDim
		e.kv = append(e.kv, model.Cache{
			K: a.tensor(cfg.NumPages*cfg.PageSize, width, cfg.DType),
			V: a.tensor(cfg.NumPages*cfg.PageSize, width, cfg.DType),
		})
	}
	e.scratch = model.NewScratch(mc, rows, cfg.MaxRunning, func(r, c int) ops.Tensor { return a.tensor(r, c, ops.F32) })
	for range mc.Ropes {
		e.ropes = append(e.ropes, a.tensor(cfg.MaxSeqLen, mc.HeadDim, ops.F32))
	}
	e.last = a.tensor(1, cfg.MaxRunning, ops.I32)
	for i := range e.sets {
		e.sets[i] = newInputs(a, cfg, rows)
	}
	if a.err != nil {
		return nil, a.err
	}
	for i, rope := range mc.Ropes {
		if err := dev.Write(e.ropes[i].Addr, ops.Bytes(ropeTable(rope, cfg.MaxSeqLen, mc.HeadDim))); err != nil {
			return nil, fmt.Errorf("engine: writing the rotary table: %w", err)
		}
	}
	return e, nil
}

// Unused returns which of a checkpoint's tensors the model did not read.
func (e *Engine) Unused(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return e.used[name] })
}

// maxRows is the largest number of tokens of a batch: prompt tokens, and beside
// them one of each running request.
func (e *Engine) maxRows() int {
	return min(e.cfg.MaxExtendTokens, e.cfg.NumPages*e.cfg.PageSize) + e.cfg.MaxRunning
}

// Submit starts a batch. The batch must stay unchanged until its Wait; at most
// two may be in flight.
func (e *Engine) Submit(b *core.Batch) error {
	in := e.sets[e.at]
	if err := in.fill(b); err != nil {
		return err
	}
	if err := in.write(e.dev); err != nil {
		return err
	}
	e.record(in)
	if err := in.list.Err(); err != nil {
		return err
	}
	if err := e.dev.Submit(&in.list); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.at = 1 - e.at
	e.flying = append(e.flying, in)
	return nil
}

// Wait blocks until the oldest batch in flight has run and returns its sampled
// tokens, in order of its Seqs; they are valid until the next Wait but one.
func (e *Engine) Wait() ([]int32, error) {
	in := e.flying[0]
	e.flying = e.flying[:copy(e.flying, e.flying[1:])]
	if err := e.dev.Wait(); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	next := in.result[:in.samples]
	if len(next) == 0 {
		return next, nil
	}
	return next, e.dev.Read(ops.Bytes(next), in.next.Addr)
}

// record lets the model record its operations for the filled inputs, and the
// sampling of its logits.
func (e *Engine) record(in *inputs) {
	logits := e.forward(in)
	if in.samples > 0 {
		next := ops.New(in.next.Addr, 1, in.samples, ops.I32)
		in.list.Sample(next, logits, in.sampling.tensor.Head(in.samples), e.last, e.cfg.Vocab)
	}
}

// forward records the model's operations and returns its logits.
func (e *Engine) forward(in *inputs) ops.Tensor {
	in.list.Reset()
	mi := in.view(e.ropes, e.last, e.cfg.PageSize)
	return e.model.Forward(&in.list, &mi, e.kv, e.scratch)
}

// ropeTable returns the cosines and sines of a rotary embedding, a row of dim/2
// cosines and dim/2 sines for each position. Angles are products in float32, as
// the reference implementations take them.
func ropeTable(r model.Rope, positions, dim int) []float32 {
	half := dim / 2
	freq := r.Frequencies(dim, positions)
	table := make([]float32, positions*dim)
	for p := range positions {
		row := table[p*dim:]
		for i, f := range freq {
			sin, cos := math.Sincos(float64(float32(p) * f))
			row[i] = float32(cos * r.AttentionFactor)
			row[half+i] = float32(sin * r.AttentionFactor)
		}
	}
	return table
}

// Package engine runs batches: it owns the device, the model, the KV cache and
// the activations, turns a batch into input tensors, lets the model record its
// operations and submits them. It never sees a queue.
package engine

import (
	"cmp"
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
	DType           ops.DType // of weights that are not quantized
	KVDType         ops.DType // of the KV cache
	Quantization    Quantization
	HasFloat8       bool // the devices have weights of F8
	PageSize        int
	NumPages        int     // 0, on devices with memory of their own: what MemoryRatio of that has room for
	MemoryRatio     float64 // share of the devices' free memory for weights, activations and pages
	GraphSizes      []int   // numbers of requests to which decoding batches are padded, so that the device gets them as graphs; empty: none are
	MaxRunning      int     // requests of a batch; rows of the table of last tokens
	MaxDraft        int     // guessed tokens of a batch, see core.Seq
	MaxExtendTokens int     // tokens of a prefill batch
	MaxSeqLen       int
	RopeLength      int // for which a dynamic rotary embedding is made; 0: MaxSeqLen. It must not depend on the number of pages
	Vocab           int // ids below it have a token; at most the model's vocab_size
}

// Engine runs one model on one device, or on several that share it. It is not
// safe for concurrent use.
type Engine struct {
	cfg    Config
	ranks  []*rank
	runner runner
	at     int            // the set of inputs that the next Submit fills
	flying []int          // sets that are submitted, in order
	lists  [2][]*ops.List // of each set, one a rank; kept, so that a step allocates nothing
	draws  [2][]*ops.List // likewise the samplings that waited for masks; none if none did
	scores []core.Score
	failed []Failure

	drawErr    [2]error // of each set: why its sampling was not submitted
	used       map[string]bool
	pagesBound string // what bounds the number of pages, if the engine has chosen it
}

// runner runs one list on each device. At most maxSubmissions may be in flight.
type runner interface {
	Submit(lists []*ops.List) error
	Wait() error
	Close()
}

// maxSubmissions is two batches, each in two lists if it needs masks.
const maxSubmissions = 4

// New builds the model on the devices, one rank on each, with weights from the
// source, and allocates what a largest batch needs.
func New(cfg Config, mc model.Config, src Source, devs ...device.Device) (*Engine, error) {
	if err := cmp.Or(mc.CheckShards(len(devs)), mc.CheckLength(cfg.MaxSeqLen)); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, used: make(map[string]bool)}
	for i, dev := range devs {
		mc.Shard = model.Shard{Rank: i, Size: len(devs)}
		r, err := newRank(cfg, mc, &loader{src: src, dev: dev, dtype: cfg.DType, quantization: cfg.Quantization, hasFloat8: cfg.HasFloat8, used: e.used})
		if err != nil {
			return nil, err
		}
		e.ranks = append(e.ranks, r)
	}
	switch {
	case len(devs) == 1:
		e.runner = single{devs[0]}
	case exchange(devs):
		e.runner = newTeam(devs)
	default:
		e.runner = newGroup(devs)
	}
	if err := e.prepare(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Pages returns the number of KV pages and, if the engine has chosen it, what bounds it.
func (e *Engine) Pages() (n int, bound string) { return e.cfg.NumPages, e.pagesBound }

// Close ends what the engine started. The devices are the caller's to close.
func (e *Engine) Close() {
	e.runner.Close()
	for _, r := range e.ranks {
		r.populate.close()
	}
}

// Time makes the device call f after each list with the nanoseconds of its
// operations; nil ends that. It reports false where that can't be done.
func (e *Engine) Time(f func(l *ops.List, ns []int64)) bool {
	dev, ok := e.ranks[0].dev.(interface {
		Time(f func(l *ops.List, ns []int64))
	})
	if !ok || len(e.ranks) > 1 {
		return false
	}
	dev.Time(f)
	return true
}

// Unused returns which of a checkpoint's tensors the model did not read.
func (e *Engine) Unused(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return e.used[name] })
}

// Submit starts a batch: its forward pass and, unless that waits for Draw, its
// sampling. The batch must stay unchanged until its Wait; at most
// two may be in flight.
func (e *Engine) Submit(b *core.Batch) error {
	lists := e.lists[e.at][:0]
	e.draws[e.at], e.drawErr[e.at] = e.draws[e.at][:0], nil
	for _, r := range e.ranks {
		in := r.sets[e.at]
		if err := in.fill(b); err != nil {
			return err
		}
		if err := in.write(r.dev); err != nil {
			return err
		}
		r.populate.reach(in.slots.host)
		r.record(in)
		if err := in.list.Err(); err != nil {
			return err
		}
		lists = append(lists, &in.list)
	}
	e.lists[e.at] = lists
	if err := e.runner.Submit(lists); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.flying = append(e.flying, e.at)
	e.at = 1 - e.at
	return nil
}

// Draw computes the masks of the batch submitted last, whose forward pass may run
// meanwhile, and submits the sampling that waits for them. All tokens before those
// that it samples must be known to the host. A batch that needs no masks needs no
// Draw. What goes wrong is told by Wait.
func (e *Engine) Draw() {
	if len(e.flying) == 0 {
		return
	}
	set := e.flying[len(e.flying)-1]
	if first := &e.ranks[0].sets[set].masks; first.pending {
		first.pending = false
		e.drawErr[set] = e.draw(set, first)
	}
}

func (e *Engine) draw(set int, first *masks) error {
	first.compute()
	draws := e.draws[set][:0]
	for _, r := range e.ranks {
		in := r.sets[set]
		if err := in.masks.write(r.dev, first.bits.host); err != nil {
			return fmt.Errorf("writing masks: %w", err)
		}
		in.draw.Reset()
		r.recordDraw(in, &in.draw)
		if err := in.draw.Err(); err != nil {
			return err
		}
		draws = append(draws, &in.draw)
	}
	if err := e.runner.Submit(draws); err != nil {
		return err
	}
	e.draws[set] = draws
	return nil
}

// Wait blocks until the oldest batch in flight has run and returns its sampled
// tokens, in order of its Seqs; they are valid until the next Wait but one.
func (e *Engine) Wait() ([]int32, error) {
	first := e.ranks[0] // every rank has sampled the same tokens
	set := e.flying[0]
	in := first.sets[set]
	e.flying = e.flying[:copy(e.flying, e.flying[1:])]
	err := e.runner.Wait()
	if len(e.draws[set]) > 0 {
		err = cmp.Or(err, e.runner.Wait())
	}
	if err = cmp.Or(err, e.drawErr[set]); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e.failed = in.masks.failed
	next := in.result[:in.samples]
	if len(next) > 0 {
		if err := first.dev.Read(ops.Bytes(next), in.next.Addr); err != nil {
			return nil, fmt.Errorf("engine: reading tokens: %w", err)
		}
	}
	if e.scores, err = in.logits.read(first.dev, next); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return next, nil
}

// Scores returns the log-probabilities that the requests of the batch of the
// last Wait asked for: for each request those of the prompt in order, and that of the
// sampled token. They are valid until the next Wait.
func (e *Engine) Scores() []core.Score { return e.scores }

// Failures returns the requests of the batch of the last Wait whose grammars
// could not go on; their tokens mean nothing. They are valid until the next Wait.
func (e *Engine) Failures() []Failure { return e.failed }

// single runs on one device.
type single struct{ device.Device }

// Submit implements runner.
func (s single) Submit(lists []*ops.List) error { return s.Device.Submit(lists[0]) }

// Close implements runner; the device is not the engine's.
func (s single) Close() {}

// ropeTable returns the cosines and sines of a rotary embedding, a row of dim/2
// cosines and dim/2 sines for each position; those of pairs that don't rotate
// come last. Angles are products in float32, as the reference implementations
// take them.
func ropeTable(r model.Rope, positions, length, dim int) []float32 {
	half := dim / 2
	freq := r.Frequencies(length)
	table := make([]float32, positions*dim)
	for p := range positions {
		row := table[p*dim:]
		for i, f := range freq {
			sin, cos := math.Sincos(float64(float32(p) * f))
			row[i] = float32(cos * r.AttentionFactor)
			row[half+i] = float32(sin * r.AttentionFactor)
		}
		for i := len(freq); i < half; i++ {
			row[i] = 1
		}
	}
	return table
}

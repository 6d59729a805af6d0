// Package model defines the architectures: each once, in Go, as code that asks a
// Loader for its weights and records a forward pass as a list of operations. It
// computes nothing itself.
//
// A new architecture is one file and one line in the registry.
package model

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// Loader gives a model its weights on a device. Names are those of the Hugging
// Face checkpoint, without ".weight"; several names are stacked by rows, which is
// how projections that read the same input become one. A Loader remembers its
// first error; the tensors that it returns after that are of no use.
type Loader interface {
	// Linear returns the weight [rows, cols] of the stacked parts.
	Linear(cols int, parts ...Part) ops.Tensor
	// Vector returns float32 values [1, n]: a norm's weight, stacked biases.
	Vector(parts ...Part) ops.Tensor
}

// Part names a tensor of a checkpoint, with its suffix (".weight", ".bias"), and
// its number of rows.
type Part struct {
	Name string
	Rows int
}

// Inputs are the device tensors that describe a batch of M rows and R requests;
// the engine fills them before each forward pass.
type Inputs struct {
	IDs       ops.Tensor // I32 [1, M]
	Last      ops.Tensor // I32 [1, slots]: each running request's last sampled token
	LogitRows ops.Tensor // I32 [1, S]: the rows whose logits are wanted
	Rope      ops.Rope
	Paged     ops.Paged
}

// Cache is the KV cache of one layer.
type Cache struct{ K, V ops.Tensor }

// Model records forward passes.
type Model interface {
	// Forward records the layers for a batch and returns the logits of the wanted
	// rows, F32 [S, vocab].
	Forward(l *ops.List, in *Inputs, kv []Cache, s *Scratch) ops.Tensor
}

// registry has one line for each architecture.
var registry = map[string]func(Config, Loader) Model{
	"LlamaForCausalLM": newLlama,
}

// New builds the model that a configuration names, with its weights from ld.
func New(c Config, ld Loader) (Model, error) {
	build, ok := registry[c.Architecture]
	if !ok {
		return nil, fmt.Errorf("model: architecture %s is not supported; known are %s", c.Architecture, known())
	}
	return build(c, ld), nil
}

// Scratch holds the activations of a forward pass, allocated once for the
// largest batch.
type Scratch struct {
	Residual ops.Tensor // [M, hidden]
	Hidden   ops.Tensor // [M, hidden]
	QKV      ops.Tensor // [M, (Q+2·KV)·D]
	Attn     ops.Tensor // [M, Q·D]
	GateUp   ops.Tensor // [M, 2·intermediate]
	Act      ops.Tensor // [M, intermediate]
	Final    ops.Tensor // [S, hidden]
	Logits   ops.Tensor // [S, vocab]
}

// NewScratch allocates activations for batches of up to rows tokens and logits
// for up to samples of them.
func NewScratch(c Config, rows, samples int, alloc func(rows, cols int) ops.Tensor) *Scratch {
	return &Scratch{
		Residual: alloc(rows, c.HiddenSize),
		Hidden:   alloc(rows, c.HiddenSize),
		QKV:      alloc(rows, (c.Heads+2*c.KVHeads)*c.HeadDim),
		Attn:     alloc(rows, c.Heads*c.HeadDim),
		GateUp:   alloc(rows, 2*c.IntermediateSize),
		Act:      alloc(rows, c.IntermediateSize),
		Final:    alloc(samples, c.HiddenSize),
		Logits:   alloc(samples, c.VocabSize),
	}
}

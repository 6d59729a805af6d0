// Package model defines the architectures: each once, in Go, as code that asks a
// Loader for its weights and records a forward pass as a list of operations. It
// computes nothing itself.
//
// A new architecture is one file and one line in the registry.
package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// Loader gives a model its weights on a device. Names are those of the Hugging
// Face checkpoint, without ".weight"; several names are stacked by rows, which is
// how projections that read the same input become one. A Loader remembers its
// first error; the tensors that it returns after that are of no use.
type Loader interface {
	// Linear returns the weight [rows, cols] of the stacked parts.
	Linear(cols int, parts ...Part) ops.Tensor
	// Vector returns float32 values [1, n]: stacked biases.
	Vector(parts ...Part) ops.Tensor
	// Norm returns a norm's weight, float32 [1, n], with offset added to each value.
	Norm(part Part, offset float32) ops.Tensor
	// Has reports whether the checkpoint holds a tensor.
	Has(name string) bool
}

// Part names a tensor of a checkpoint, with its suffix (".weight", ".bias"), and
// its number of rows. Without a name it is rows of zeros.
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
	Rope      ops.Rope   // without its table
	Paged     ops.Paged
	// RopeTables are the tables of Config.Ropes, in order.
	RopeTables []ops.Tensor
}

// Cache is the KV cache of one layer.
type Cache struct{ K, V ops.Tensor }

// Model records forward passes.
type Model interface {
	// Forward records the layers for a batch and returns the logits of the wanted
	// rows, F32 [S, vocab].
	Forward(l *ops.List, in *Inputs, kv []Cache, s *Scratch) ops.Tensor
}

// family is a model architecture.
type family struct {
	defaults func(*rawConfig)                // sets what a configuration may leave out, where Llama's defaults don't hold; nil: they do
	read     func(*rawConfig, *Config) error // reads the family's own settings, and refuses those of others
	nested   bool                            // the configuration lies in text_config
	build    func(Config, Loader) Model
}

// registry has one line for each architecture.
var registry = map[string]family{
	"LlamaForCausalLM":                 {read: readLlama, build: newLlama},
	"MistralForCausalLM":               {defaults: mistralDefaults, read: readMistral, build: newMistral},
	"Mistral3ForConditionalGeneration": {defaults: mistralDefaults, read: readMistral3, nested: true, build: newMistral3},
	"Phi3ForCausalLM":                  {defaults: phi3Defaults, read: readPhi3, build: newPhi3},
	"Qwen2ForCausalLM":                 {defaults: qwen2Defaults, read: readQwen2, build: newQwen2},
	"Qwen3ForCausalLM":                 {defaults: qwen3Defaults, read: readQwen3, build: newQwen3},
	"Qwen3MoeForCausalLM":              {defaults: qwen3MoEDefaults, read: readQwen3MoE, build: newQwen3MoE},
	"Gemma3ForCausalLM":                {defaults: gemma3Defaults, read: readGemma3, build: newGemma3},
}

func familyOf(architecture string) (family, error) {
	f, ok := registry[architecture]
	if !ok {
		return family{}, fmt.Errorf("model: architecture %s is not supported; known are %s", architecture, known())
	}
	return f, nil
}

// known lists the architectures.
func known() string {
	return strings.Join(slices.Sorted(maps.Keys(registry)), ", ")
}

// New builds the model that a configuration names, with its weights from ld.
func New(c Config, ld Loader) (Model, error) {
	f, err := familyOf(c.Architecture)
	if err != nil {
		return nil, err
	}
	return f.build(c, ld), nil
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
	Router   ops.Tensor // [M, experts]
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
		Router:   alloc(rows, c.MoE.NumExperts),
		Final:    alloc(samples, c.HiddenSize),
		Logits:   alloc(samples, c.VocabSize),
	}
}

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

// Part is rows First … First+Rows-1 of a checkpoint's tensor, named with its
// suffix (".weight", ".bias"), that has Of rows in all; Of 0 means that Rows are
// all. Without a name it is rows of zeros.
type Part struct {
	Name  string
	Rows  int
	First int
	Of    int
}

// Total is the number of rows of the whole tensor.
func (p Part) Total() int {
	if p.Of == 0 {
		return p.Rows
	}
	return p.Of
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
	// Logits records the logits of further rows of the batch that Forward recorded
	// last, in the place of those before.
	Logits(l *ops.List, rows ops.Tensor, s *Scratch) ops.Tensor
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
	"Ministral3ForCausalLM":            {defaults: ministral3Defaults, read: readMinistral3, build: newMinistral3},
	"Mistral3ForConditionalGeneration": {defaults: mistral3Defaults, read: readMistral3, nested: true, build: newMistral3},
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
// largest batch. A Part is what a rank computes of the tensor beside it; on a
// single device it is that tensor.
type Scratch struct {
	Residual           ops.Tensor // [M, hidden]
	Hidden, HiddenPart ops.Tensor // [M, hidden]
	QKV                ops.Tensor // [M, (Q+2·KV)·D] of the rank's heads
	Attn, AttnPart     ops.Tensor // [M, Q·D]; on a single device it is the place of the queries
	GateUp             ops.Tensor // [mlpRows, 2·intermediate] of the rank
	Act, ActPart       ops.Tensor // [mlpRows, intermediate]
	Router             ops.Tensor // [M, experts]
	Final              ops.Tensor // [S, hidden]
	Logits, LogitsPart ops.Tensor // [S, vocab]
}

// mlpRows is the number of rows that an mlp computes at a time.
const mlpRows = 1024

// NewScratch allocates activations for batches of up to rows tokens and logits
// for up to samples of them.
func NewScratch(c Config, rows, samples int, alloc func(rows, cols int) ops.Tensor) *Scratch {
	q, kv, _, _ := c.rankHeads()
	_, inner := c.Shard.span(c.IntermediateSize)
	share := func(whole ops.Tensor) ops.Tensor {
		if c.Shard.size() == 1 {
			return whole
		}
		_, outputs := c.Shard.span(int(whole.Cols))
		return alloc(int(whole.Rows), outputs)
	}
	s := &Scratch{
		Residual: alloc(rows, c.HiddenSize),
		Hidden:   alloc(rows, c.HiddenSize),
		QKV:      alloc(rows, (q+2*kv)*c.HeadDim),
		GateUp:   alloc(min(rows, mlpRows), 2*inner),
		Act:      alloc(min(rows, mlpRows), c.IntermediateSize),
		Router:   alloc(rows, c.MoE.NumExperts),
		Final:    alloc(samples, c.HiddenSize),
		Logits:   alloc(samples, c.VocabSize),
	}
	s.Attn = s.QKV.Columns(0, q*c.HeadDim)
	s.AttnPart = s.Attn
	if c.Shard.size() > 1 {
		s.Attn, s.AttnPart = alloc(rows, c.Heads*c.HeadDim), alloc(rows, q*c.HeadDim)
	}
	s.HiddenPart, s.ActPart, s.LogitsPart = share(s.Hidden), share(s.Act), share(s.Logits)
	return s
}

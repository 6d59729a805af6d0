package model

import (
	"fmt"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// layout says how a family's decoder departs from Llama's. The zero value is
// Llama without biases.
type layout struct {
	base       string  // prefix of the decoder's tensors; "": "model."
	head       string  // the output projection; "": "lm_head.weight"
	fused      bool    // q, k, v are one tensor, and so are gate and up
	qkvBias    bool    // q, k and v have biases
	outBias    bool    // o has one
	mlpBias    bool    // gate, up and down have them
	headNorms  bool    // queries and keys are normalised per head
	sandwich   bool    // attention and MLP are followed by a norm each, too
	normOffset float32 // added to every norm's weight
	embedScale float32 // of embeddings; 0: 1
	// feedForward builds a layer's feed-forward part; nil: an mlp.
	feedForward func(c Config, ld Loader, prefix string, layer int) feedForward
}

// decoder is the shape that most models share: blocks of attention and MLP, each
// behind an RMSNorm and beside a residual stream, then a norm and the head.
type decoder struct {
	eps        float32
	embedScale float32
	embed      ops.Tensor
	blocks     []block
	norm       ops.Tensor
	head       ops.Tensor
	act        Scratch // the activations, cut to the batch that is being recorded
}

type block struct {
	attnNorm ops.Tensor
	attn     attention
	attnOut  ops.Tensor // norm of attention's output; absent: none
	ffNorm   ops.Tensor
	ff       feedForward
	ffOut    ops.Tensor // norm of the feed-forward's output; absent: none
}

func newDecoder(c Config, ld Loader, lay layout) *decoder {
	if lay.base == "" {
		lay.base = "model."
	}
	if lay.head == "" {
		lay.head = "lm_head.weight"
	}
	d := &decoder{
		eps:        c.RMSNormEps,
		embedScale: lay.embedScale,
		embed:      ld.Linear(c.HiddenSize, Part{Name: lay.base + "embed_tokens.weight", Rows: c.VocabSize}),
		norm:       ld.Norm(Part{Name: lay.base + "norm.weight", Rows: c.HiddenSize}, lay.normOffset),
	}
	switch own := !c.TieEmbeddings || ld.Has(lay.head); {
	case own:
		d.head = ld.Linear(c.HiddenSize, c.Shard.part(lay.head, c.VocabSize))
	case c.Shard.size() > 1:
		d.head = ld.Linear(c.HiddenSize, c.Shard.part(lay.base+"embed_tokens.weight", c.VocabSize))
	default:
		d.head = d.embed
	}
	for i := range c.Layers {
		d.blocks = append(d.blocks, newBlock(c, ld, lay, i))
	}
	return d
}

func newBlock(c Config, ld Loader, lay layout, layer int) block {
	prefix := fmt.Sprintf("%slayers.%d.", lay.base, layer)
	norm := func(name string) ops.Tensor {
		return ld.Norm(Part{Name: prefix + name + ".weight", Rows: c.HiddenSize}, lay.normOffset)
	}
	b := block{attnNorm: norm("input_layernorm"), attn: newAttention(c, lay, ld, prefix+"self_attn.", layer)}
	if lay.sandwich {
		b.attnOut, b.ffNorm = norm("post_attention_layernorm"), norm("pre_feedforward_layernorm")
		b.ffOut = norm("post_feedforward_layernorm")
	} else {
		b.ffNorm = norm("post_attention_layernorm")
	}
	if lay.feedForward != nil {
		b.ff = lay.feedForward(c, ld, prefix+"mlp.", layer)
	} else {
		b.ff = newMLP(c, lay, ld, prefix+"mlp.")
	}
	return b
}

// Forward implements Model. A batch that wants no logits ends with the last
// layer.
func (d *decoder) Forward(l *ops.List, in *Inputs, kv []Cache, s *Scratch) ops.Tensor {
	d.act = s.forRows(int(in.IDs.Cols), int(in.LogitRows.Cols))
	act := &d.act
	l.Embed(act.Residual, d.embed, in.IDs, in.Last, d.embedScale)
	pending := ops.Tensor{} // a layer's output that is still to be added to the residual stream
	for i := range d.blocks {
		b := &d.blocks[i]
		d.addNorm(l, act, pending, b.attnNorm)
		b.attn.forward(l, in, kv[i], act)
		d.normOutput(l, act, b.attnOut)
		d.addNorm(l, act, act.Hidden, b.ffNorm)
		b.ff.forward(l, act)
		d.normOutput(l, act, b.ffOut)
		pending = act.Hidden
	}
	if act.Logits.Rows == 0 {
		return ops.Tensor{}
	}
	d.addNorm(l, act, pending, d.norm)
	return d.Logits(l, in.LogitRows, s)
}

// Logits implements Model.
func (d *decoder) Logits(l *ops.List, rows ops.Tensor, s *Scratch) ops.Tensor {
	n := int(rows.Cols)
	final, logits, part := s.Final.Head(n), s.Logits.Head(n), s.LogitsPart.Head(n)
	l.GatherRows(final, d.act.Hidden, rows)
	l.Linear(part, final, d.head, ops.Tensor{})
	l.AllGather(logits, part)
	return logits
}

// addNorm adds x, if there is one, to the residual stream and leaves its norm in
// Hidden.
func (d *decoder) addNorm(l *ops.List, s *Scratch, x, weight ops.Tensor) {
	if x.Valid() {
		l.RMSNorm(s.Hidden, x, weight, s.Residual, d.eps)
	} else {
		l.RMSNorm(s.Hidden, s.Residual, weight, ops.Tensor{}, d.eps)
	}
}

// normOutput normalises Hidden, if there is a weight.
func (d *decoder) normOutput(l *ops.List, s *Scratch, weight ops.Tensor) {
	if weight.Valid() {
		l.RMSNorm(s.Hidden, s.Hidden, weight, ops.Tensor{}, d.eps)
	}
}

// forRows returns the scratch cut to a batch.
func (s *Scratch) forRows(rows, samples int) Scratch {
	return Scratch{
		Residual: s.Residual.Head(rows), Hidden: s.Hidden.Head(rows), HiddenPart: s.HiddenPart.Head(rows),
		QKV: s.QKV.Head(rows), Attn: s.Attn.Head(rows), AttnPart: s.AttnPart.Head(rows),
		GateUp: s.GateUp, Act: s.Act, ActPart: s.ActPart, Router: s.Router.Head(rows),
		Final: s.Final.Head(samples), Logits: s.Logits.Head(samples), LogitsPart: s.LogitsPart.Head(samples),
	}
}

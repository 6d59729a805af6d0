package model

import (
	"fmt"
	"math"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// attention is a self-attention layer with rotary embedding and grouped key and
// value heads.
type attention struct {
	heads        ops.Heads
	eps          float32
	qkv, qkvBias ops.Tensor
	o, oBias     ops.Tensor
	qNorm, kNorm ops.Tensor // absent: no norm of queries and keys
}

func newAttention(c Config, ld Loader, prefix string) attention {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	a := attention{
		heads: ops.Heads{Q: c.Heads, KV: c.KVHeads, Dim: c.HeadDim},
		eps:   c.RMSNormEps,
		qkv: ld.Linear(c.HiddenSize, Part{prefix + "q_proj.weight", q},
			Part{prefix + "k_proj.weight", kv}, Part{prefix + "v_proj.weight", kv}),
		o: ld.Linear(q, Part{prefix + "o_proj.weight", c.HiddenSize}),
	}
	if c.AttentionBias {
		a.qkvBias = ld.Vector(Part{prefix + "q_proj.bias", q}, Part{prefix + "k_proj.bias", kv}, Part{prefix + "v_proj.bias", kv})
		a.oBias = ld.Vector(Part{prefix + "o_proj.bias", c.HiddenSize})
	}
	return a
}

// forward reads s.Hidden and leaves the layer's output there.
func (a *attention) forward(l *ops.List, in *Inputs, kv Cache, s *Scratch) {
	scale := float32(1 / math.Sqrt(float64(a.heads.Dim)))
	l.Linear(s.QKV, s.Hidden, a.qkv, a.qkvBias)
	l.RopeStore(s.QKV, in.Rope, kv.K, kv.V, a.qNorm, a.kNorm, a.heads, a.eps)
	l.Attention(s.Attn, s.QKV.Columns(0, a.heads.Q*a.heads.Dim), in.Paged, kv.K, kv.V, a.heads, scale, 0)
	l.Linear(s.Hidden, s.Attn, a.o, a.oBias)
}

// mlp is a SwiGLU feed-forward layer.
type mlp struct {
	gateUp, gateUpBias ops.Tensor
	down, downBias     ops.Tensor
}

func newMLP(c Config, ld Loader, prefix string) mlp {
	m := mlp{
		gateUp: ld.Linear(c.HiddenSize, Part{prefix + "gate_proj.weight", c.IntermediateSize},
			Part{prefix + "up_proj.weight", c.IntermediateSize}),
		down: ld.Linear(c.IntermediateSize, Part{prefix + "down_proj.weight", c.HiddenSize}),
	}
	if c.MLPBias {
		m.gateUpBias = ld.Vector(Part{prefix + "gate_proj.bias", c.IntermediateSize}, Part{prefix + "up_proj.bias", c.IntermediateSize})
		m.downBias = ld.Vector(Part{prefix + "down_proj.bias", c.HiddenSize})
	}
	return m
}

// forward reads s.Hidden and leaves the layer's output there.
func (m *mlp) forward(l *ops.List, s *Scratch) {
	l.Linear(s.GateUp, s.Hidden, m.gateUp, m.gateUpBias)
	l.SiLUMul(s.Act, s.GateUp)
	l.Linear(s.Hidden, s.Act, m.down, m.downBias)
}

// decoder is the shape that most models share: blocks of attention and MLP, each
// behind an RMSNorm and beside a residual stream, then a norm and the head.
type decoder struct {
	eps    float32
	embed  ops.Tensor
	blocks []block
	norm   ops.Tensor
	head   ops.Tensor
}

type block struct {
	inputNorm ops.Tensor
	attn      attention
	postNorm  ops.Tensor
	mlp       mlp
}

func newDecoder(c Config, ld Loader) *decoder {
	d := &decoder{
		eps:   c.RMSNormEps,
		embed: ld.Linear(c.HiddenSize, Part{"model.embed_tokens.weight", c.VocabSize}),
		norm:  ld.Vector(Part{"model.norm.weight", c.HiddenSize}),
	}
	d.head = d.embed
	if !c.TieEmbeddings {
		d.head = ld.Linear(c.HiddenSize, Part{"lm_head.weight", c.VocabSize})
	}
	for i := range c.Layers {
		prefix := fmt.Sprintf("model.layers.%d.", i)
		d.blocks = append(d.blocks, block{
			inputNorm: ld.Vector(Part{prefix + "input_layernorm.weight", c.HiddenSize}),
			attn:      newAttention(c, ld, prefix+"self_attn."),
			postNorm:  ld.Vector(Part{prefix + "post_attention_layernorm.weight", c.HiddenSize}),
			mlp:       newMLP(c, ld, prefix+"mlp."),
		})
	}
	return d
}

// Forward implements Model. A batch that wants no logits ends with the last
// layer.
func (d *decoder) Forward(l *ops.List, in *Inputs, kv []Cache, s *Scratch) ops.Tensor {
	act := s.forRows(int(in.IDs.Cols), int(in.LogitRows.Cols))
	l.Embed(act.Residual, d.embed, in.IDs, in.Last)
	pending := ops.Tensor{} // a layer's output that is still to be added to the residual stream
	for i := range d.blocks {
		b := &d.blocks[i]
		d.addNorm(l, &act, pending, b.inputNorm)
		b.attn.forward(l, in, kv[i], &act)
		d.addNorm(l, &act, act.Hidden, b.postNorm)
		b.mlp.forward(l, &act)
		pending = act.Hidden
	}
	if act.Logits.Rows == 0 {
		return ops.Tensor{}
	}
	d.addNorm(l, &act, pending, d.norm)
	l.GatherRows(act.Final, act.Hidden, in.LogitRows)
	l.Linear(act.Logits, act.Final, d.head, ops.Tensor{})
	return act.Logits
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

// forRows returns the scratch cut to a batch.
func (s *Scratch) forRows(rows, samples int) Scratch {
	return Scratch{
		Residual: s.Residual.Head(rows), Hidden: s.Hidden.Head(rows), QKV: s.QKV.Head(rows),
		Attn: s.Attn.Head(rows), GateUp: s.GateUp.Head(rows), Act: s.Act.Head(rows),
		Final: s.Final.Head(samples), Logits: s.Logits.Head(samples),
	}
}

package model

import (
	"github.com/minisgl/minisgl/go/internal/ops"
)

// attention is a self-attention layer with rotary embedding and grouped key and
// value heads.
type attention struct {
	heads        ops.Heads
	eps          float32
	scale        float32 // of the scores
	window       int     // positions that a row sees; 0: all
	rope         int     // index of the layer's rotary table
	qkv, qkvBias ops.Tensor
	o, oBias     ops.Tensor
	qNorm, kNorm ops.Tensor // absent: no norm of queries and keys
}

func newAttention(c Config, lay layout, ld Loader, prefix string, layer int) attention {
	q, kv, _, _ := c.rankHeads()
	a := attention{
		heads:  ops.Heads{Q: q, KV: kv, Dim: c.HeadDim},
		eps:    c.RMSNormEps,
		scale:  c.scoreScale(),
		window: c.window(layer),
		rope:   c.ropeOf(layer),
		qkv:    ld.Linear(c.HiddenSize, c.qkvParts(lay.fused, prefix, ".weight")...),
		o:      ld.Linear(c.Heads*c.HeadDim, c.Shard.part(prefix+"o_proj.weight", c.HiddenSize)),
	}
	if lay.qkvBias {
		a.qkvBias = ld.Vector(c.qkvParts(lay.fused, prefix, ".bias")...)
	}
	if lay.outBias {
		a.oBias = ld.Vector(c.Shard.part(prefix+"o_proj.bias", c.HiddenSize))
	}
	if lay.headNorms {
		a.qNorm = ld.Norm(Part{Name: prefix + "q_norm.weight", Rows: c.HeadDim}, lay.normOffset)
		a.kNorm = ld.Norm(Part{Name: prefix + "k_norm.weight", Rows: c.HeadDim}, lay.normOffset)
	}
	return a
}

// forward reads s.Hidden and leaves the layer's output there.
func (a *attention) forward(l *ops.List, in *Inputs, kv Cache, s *Scratch) {
	rope := in.Rope
	rope.Table = in.RopeTables[a.rope]
	l.Linear(s.QKV, s.Hidden, a.qkv, a.qkvBias)
	l.RopeStore(s.QKV, rope, kv.K, kv.V, a.qNorm, a.kNorm, a.heads, a.eps)
	l.Attention(s.AttnPart, s.QKV.Columns(0, a.heads.Q*a.heads.Dim), in.Paged, kv.K, kv.V, a.heads, a.scale, a.window)
	l.AllGather(s.Attn, s.AttnPart)
	l.Linear(s.HiddenPart, s.Attn, a.o, a.oBias)
	l.AllGather(s.Hidden, s.HiddenPart)
}

// feedForward is what follows attention in a block.
type feedForward interface {
	// forward reads s.Hidden and leaves the layer's output there.
	forward(l *ops.List, s *Scratch)
}

// mlp is a gated feed-forward layer: down(activation(gate(x)) * up(x)).
type mlp struct {
	activation         ops.Activation
	gateUp, gateUpBias ops.Tensor
	down, downBias     ops.Tensor
}

func newMLP(c Config, lay layout, ld Loader, prefix string) *mlp {
	m := &mlp{
		activation: c.Activation,
		gateUp:     ld.Linear(c.HiddenSize, c.gateUpParts(lay.fused, prefix, ".weight")...),
		down:       ld.Linear(c.IntermediateSize, c.Shard.part(prefix+"down_proj.weight", c.HiddenSize)),
	}
	if lay.mlpBias {
		m.gateUpBias = ld.Vector(c.gateUpParts(lay.fused, prefix, ".bias")...)
		m.downBias = ld.Vector(c.Shard.part(prefix+"down_proj.bias", c.HiddenSize))
	}
	return m
}

// forward goes by slices of the rows, which share the memory between the
// projections: it would be most of a long batch's.
func (m *mlp) forward(l *ops.List, s *Scratch) {
	for from := 0; from < int(s.Hidden.Rows); from += mlpRows {
		n := min(mlpRows, int(s.Hidden.Rows)-from)
		hidden, part := s.Hidden.Below(from, n), s.HiddenPart.Below(from, n)
		gateUp, act, actPart := s.GateUp.Head(n), s.Act.Head(n), s.ActPart.Head(n)
		l.Linear(gateUp, hidden, m.gateUp, m.gateUpBias)
		l.ActMul(actPart, gateUp, m.activation)
		l.AllGather(act, actPart)
		l.Linear(part, act, m.down, m.downBias)
		l.AllGather(hidden, part)
	}
}

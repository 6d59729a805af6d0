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
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	a := attention{
		heads:  ops.Heads{Q: c.Heads, KV: c.KVHeads, Dim: c.HeadDim},
		eps:    c.RMSNormEps,
		scale:  c.scoreScale(),
		window: c.window(layer),
		rope:   c.ropeOf(layer),
		o:      ld.Linear(q, Part{prefix + "o_proj.weight", c.HiddenSize}),
	}
	if lay.fused {
		a.qkv = ld.Linear(c.HiddenSize, Part{prefix + "qkv_proj.weight", q + 2*kv})
	} else {
		a.qkv = ld.Linear(c.HiddenSize, Part{prefix + "q_proj.weight", q},
			Part{prefix + "k_proj.weight", kv}, Part{prefix + "v_proj.weight", kv})
	}
	if lay.qkvBias {
		a.qkvBias = ld.Vector(Part{prefix + "q_proj.bias", q}, Part{prefix + "k_proj.bias", kv}, Part{prefix + "v_proj.bias", kv})
	}
	if lay.outBias {
		a.oBias = ld.Vector(Part{prefix + "o_proj.bias", c.HiddenSize})
	}
	if lay.headNorms {
		a.qNorm = ld.Norm(Part{prefix + "q_norm.weight", c.HeadDim}, lay.normOffset)
		a.kNorm = ld.Norm(Part{prefix + "k_norm.weight", c.HeadDim}, lay.normOffset)
	}
	return a
}

// forward reads s.Hidden and leaves the layer's output there.
func (a *attention) forward(l *ops.List, in *Inputs, kv Cache, s *Scratch) {
	rope := in.Rope
	rope.Table = in.RopeTables[a.rope]
	l.Linear(s.QKV, s.Hidden, a.qkv, a.qkvBias)
	l.RopeStore(s.QKV, rope, kv.K, kv.V, a.qNorm, a.kNorm, a.heads, a.eps)
	l.Attention(s.Attn, s.QKV.Columns(0, a.heads.Q*a.heads.Dim), in.Paged, kv.K, kv.V, a.heads, a.scale, a.window)
	l.Linear(s.Hidden, s.Attn, a.o, a.oBias)
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
		down:       ld.Linear(c.IntermediateSize, Part{prefix + "down_proj.weight", c.HiddenSize}),
	}
	if lay.fused {
		m.gateUp = ld.Linear(c.HiddenSize, Part{prefix + "gate_up_proj.weight", 2 * c.IntermediateSize})
	} else {
		m.gateUp = ld.Linear(c.HiddenSize, Part{prefix + "gate_proj.weight", c.IntermediateSize},
			Part{prefix + "up_proj.weight", c.IntermediateSize})
	}
	if lay.mlpBias {
		m.gateUpBias = ld.Vector(Part{prefix + "gate_proj.bias", c.IntermediateSize}, Part{prefix + "up_proj.bias", c.IntermediateSize})
		m.downBias = ld.Vector(Part{prefix + "down_proj.bias", c.HiddenSize})
	}
	return m
}

func (m *mlp) forward(l *ops.List, s *Scratch) {
	l.Linear(s.GateUp, s.Hidden, m.gateUp, m.gateUpBias)
	l.ActMul(s.Act, s.GateUp, m.activation)
	l.Linear(s.Hidden, s.Act, m.down, m.downBias)
}

package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// MoE is the mixture of experts in a configuration. Names follow the file.
type MoE struct {
	NumExperts       int
	NumExpertsPerTok int
	IntermediateSize int  // moe_intermediate_size: of an expert
	NormTopKProb     bool // whether the weights of a token's experts are scaled to a sum of one
	SparseStep       int  // decoder_sparse_step: every such layer is sparse
	DenseLayers      []int
}

// Sparse reports whether a layer has experts in place of an mlp.
func (m MoE) Sparse(layer int) bool {
	return m.NumExperts > 0 && (layer+1)%m.SparseStep == 0 && !slices.Contains(m.DenseLayers, layer)
}

// check refuses sizes that don't fit together or make tensors too large to address.
func (m MoE) check(hidden int) error {
	if m.SparseStep < 1 {
		return fmt.Errorf("config.json: decoder_sparse_step is %d; it must be positive", m.SparseStep)
	}
	if m.NumExperts == 0 {
		return nil
	}
	if m.IntermediateSize < 1 || m.IntermediateSize > maxDim {
		return fmt.Errorf("config.json: moe_intermediate_size is %d; it must be 1 to %d", m.IntermediateSize, maxDim)
	}
	most := math.MaxInt32 / ops.ExpertRows(max(2*m.IntermediateSize, hidden))
	if m.NumExperts < 0 || m.NumExperts > most {
		return fmt.Errorf("config.json: num_experts is %d; it must be 0 to %d", m.NumExperts, most)
	}
	if m.NumExpertsPerTok < 1 || m.NumExpertsPerTok > m.NumExperts {
		return fmt.Errorf("config.json: num_experts_per_tok is %d; it must be 1 to num_experts, %d", m.NumExpertsPerTok, m.NumExperts)
	}
	return nil
}

// moe is a feed-forward layer of experts, of which each row uses some.
type moe struct {
	experts      ops.Experts
	router       ops.Tensor
	gateUp, down ops.Tensor
}

func newMoE(c Config, ld Loader, prefix string) *moe {
	m := c.MoE
	var gateUp, down []Part
	for e := range m.NumExperts {
		name := fmt.Sprintf("%sexperts.%d.", prefix, e)
		gateUp = append(gateUp, expertParts(Part{Name: name + "gate_proj.weight", Rows: m.IntermediateSize}, Part{Name: name + "up_proj.weight", Rows: m.IntermediateSize})...)
		down = append(down, expertParts(Part{Name: name + "down_proj.weight", Rows: c.HiddenSize})...)
	}
	return &moe{
		experts: ops.Experts{TopK: m.NumExpertsPerTok, Normalise: m.NormTopKProb},
		router:  ld.Linear(c.HiddenSize, Part{Name: prefix + "gate.weight", Rows: m.NumExperts}),
		gateUp:  ld.Linear(c.HiddenSize, gateUp...),
		down:    ld.Linear(m.IntermediateSize, down...),
	}
}

// expertParts appends the rows of zeros that ops.MoE wants behind each expert's.
func expertParts(parts ...Part) []Part {
	rows := stacked(parts)
	if missing := ops.ExpertRows(rows) - rows; missing > 0 {
		parts = append(parts, Part{Rows: missing})
	}
	return parts
}

func (m *moe) forward(l *ops.List, s *Scratch) {
	l.Linear(s.Router, s.Hidden, m.router, ops.Tensor{})
	l.MoE(s.Hidden, s.Hidden, s.Router, m.gateUp, m.down, m.experts)
}

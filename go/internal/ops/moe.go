package ops

// Experts describes the routing of a mixture of experts.
type Experts struct {
	TopK      int  // experts of a row
	Normalise bool // whether the weights of a row's experts are scaled to a sum of one
}

// ExpertPanel is what the rows of each expert's weight are padded to a multiple
// of, so that an expert starts where a device can address it.
const ExpertPanel = 16

// ExpertRows returns the rows that an expert with a weight of that many rows takes
// in the stacked weight of all experts.
func ExpertRows(rows int) int { return (rows + ExpertPanel - 1) / ExpertPanel * ExpertPanel }

// MoE is a mixture of SwiGLU experts (Shazeer et al., 2017): of each row's TopK
// experts with the largest logits, the smaller ids among equals, it adds up
// weight · down(silu(gate(x)) * up(x)), in ascending order of expert. The weights
// are the softmax of all the row's logits. A row's result does not depend on the
// rows beside it.
//
// dst and x are F32 [M, H], logits F32 [M, E], gateUp [E·ExpertRows(2F), H] and
// down [E·ExpertRows(H), F] are from Device.Load: the experts one after the other,
// each expert's gate, up and down as a gated layer has them, and then rows of
// zeros up to ExpertRows. dst may be x.
func (l *List) MoE(dst, x, logits, gateUp, down Tensor, e Experts) {
	if ok := dst.Rows == x.Rows && dst.Cols == x.Cols && logits.Rows == x.Rows; !ok {
		l.fail(KindMoE, "dst %v, x %v, logits %v", dst, x, logits)
	}
	if ok := int(gateUp.Rows) == int(logits.Cols)*ExpertRows(2*int(down.Cols)) && gateUp.Cols == x.Cols &&
		int(down.Rows) == int(logits.Cols)*ExpertRows(int(x.Cols)); !ok {
		l.fail(KindMoE, "gate_up %v, down %v, x %v, logits %v", gateUp, down, x, logits)
	}
	if ok := e.TopK >= 1 && e.TopK <= int(logits.Cols); !ok {
		l.fail(KindMoE, "%d of %d experts", e.TopK, logits.Cols)
	}
	op := Op{Kind: KindMoE, T: [8]Tensor{dst, x, logits, gateUp, down}, I: [8]int32{int32(e.TopK)}}
	if e.Normalise {
		op.I[1] = 1
	}
	l.add(op)
}

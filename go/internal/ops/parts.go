package ops

// Part is what an operation belongs to in a forward pass.
type Part string

// The parts of a forward pass.
const (
	PartEmbed     Part = "embedding"
	PartNorm      Part = "norm"
	PartAttention Part = "attention" // with the projections around it
	PartMLP       Part = "mlp"       // or a mixture of experts, with its router
	PartHead      Part = "head"
	PartSampling  Part = "sampling"
	PartExchange  Part = "exchange between ranks"
)

// kindParts has the kinds that belong to one part.
var kindParts = map[Kind]Part{
	KindEmbed: PartEmbed, KindRMSNorm: PartNorm, KindRopeStore: PartAttention, KindAttention: PartAttention,
	KindActMul: PartMLP, KindMoE: PartMLP, KindGatherRows: PartHead, KindSample: PartSampling,
	KindAdjust: PartSampling, KindMask: PartSampling, KindLogprobs: PartSampling, KindAllGather: PartExchange,
}

// Part returns what operation i belongs to. A projection belongs to what its
// neighbours do: before the keys are stored and after attention to attention,
// after the last rows are gathered to the head, else to the MLP.
func (l *List) Part(i int) Part {
	if part, ok := kindParts[l.Ops[i].Kind]; ok {
		return part
	}
	if i+1 < len(l.Ops) && l.Ops[i+1].Kind == KindRopeStore {
		return PartAttention
	}
	for before := i - 1; before >= 0; before-- {
		switch l.Ops[before].Kind {
		case KindAttention:
			return PartAttention
		case KindGatherRows:
			return PartHead
		case KindRMSNorm, KindAllGather:
			continue
		}
		return PartMLP
	}
	return PartMLP
}

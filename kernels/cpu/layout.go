package cpu

// #include "msgl.h"
import "C"

import "unsafe"

// Layout gives sizes and offsets of the structs of msgl.h in bytes, for a test
// of the Go side that has to match them.
type Layout struct {
	Op, OpKind, OpT, OpF, OpI                               uintptr
	Tensor, TensorAddr, TensorRows, TensorCols              uintptr
	TensorStride, TensorDType                               uintptr
	Sampling, SamplingTemperature, SamplingTopP             uintptr
	SamplingMinP, SamplingTopK, SamplingSeedLo              uintptr
	SamplingSeedHi, SamplingPosition, SamplingSlot, OpAlign uintptr
	Adjustment, AdjustmentRepetition, AdjustmentBiases      uintptr
	Scoring, ScoringTop, ScoringTemperature                 uintptr
}

// CLayout returns the layout that the C compiler chose.
func CLayout() Layout {
	var op C.msgl_op
	var t C.msgl_tensor
	var s C.msgl_sampling
	var a C.msgl_adjustment
	var p C.msgl_scoring
	return Layout{
		Op: unsafe.Sizeof(op), OpKind: unsafe.Offsetof(op.kind), OpT: unsafe.Offsetof(op.t),
		OpF: unsafe.Offsetof(op.f), OpI: unsafe.Offsetof(op.i), OpAlign: unsafe.Alignof(op),
		Tensor: unsafe.Sizeof(t), TensorAddr: unsafe.Offsetof(t.addr), TensorRows: unsafe.Offsetof(t.rows),
		TensorCols: unsafe.Offsetof(t.cols), TensorStride: unsafe.Offsetof(t.stride), TensorDType: unsafe.Offsetof(t.dtype),
		Sampling: unsafe.Sizeof(s), SamplingTemperature: unsafe.Offsetof(s.temperature),
		SamplingTopP: unsafe.Offsetof(s.top_p), SamplingMinP: unsafe.Offsetof(s.min_p),
		SamplingTopK: unsafe.Offsetof(s.top_k), SamplingSeedLo: unsafe.Offsetof(s.seed_lo),
		SamplingSeedHi: unsafe.Offsetof(s.seed_hi), SamplingPosition: unsafe.Offsetof(s.position),
		SamplingSlot: unsafe.Offsetof(s.slot),
		Adjustment:   unsafe.Sizeof(a), AdjustmentRepetition: unsafe.Offsetof(a.repetition), AdjustmentBiases: unsafe.Offsetof(a.biases),
		Scoring: unsafe.Sizeof(p), ScoringTop: unsafe.Offsetof(p.top), ScoringTemperature: unsafe.Offsetof(p.temperature),
	}
}

package ops

// Kind names an operation. The numbers are part of the kernels' boundary
// (msgl_kind in kernels/cpu/msgl.h); new kinds are appended.
type Kind int32

const (
	KindEmbed      Kind = 1
	KindRMSNorm    Kind = 2
	KindLinear     Kind = 3
	KindRopeStore  Kind = 4
	KindAttention  Kind = 5
	KindActMul     Kind = 6
	KindGatherRows Kind = 7
	KindSample     Kind = 8
	KindMoE        Kind = 9
	KindAllGather  Kind = 10 // run by the engine between devices that don't exchange by themselves
	KindAdjust     Kind = 11
	KindLogprobs   Kind = 12
	KindMask       Kind = 13
)

var kindNames = map[Kind]string{
	KindEmbed:      "embed",
	KindRMSNorm:    "rms_norm",
	KindLinear:     "linear",
	KindRopeStore:  "rope_store",
	KindAttention:  "attention",
	KindActMul:     "act_mul",
	KindGatherRows: "gather_rows",
	KindSample:     "sample",
	KindMoE:        "moe",
	KindAllGather:  "all_gather",
	KindAdjust:     "adjust",
	KindLogprobs:   "logprobs",
	KindMask:       "mask",
}

func (k Kind) String() string { return kindNames[k] }

// Activation is the function of a gate. The numbers are part of the kernels'
// boundary (msgl_activation in kernels/cpu/msgl.h).
type Activation int32

const (
	SiLU     Activation = 0 // x / (1 + exp(-x))
	GELUTanh Activation = 1 // x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))), the approximation of GELU
)

// Op is one recorded operation: a fixed-size value without Go pointers, laid out
// as msgl_op. What T, F and I hold depends on Kind; the List method that appends
// a kind documents it.
type Op struct {
	Kind Kind
	_    int32
	T    [8]Tensor
	F    [4]float32
	I    [8]int32
}

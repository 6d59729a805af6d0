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
	KindAllGather  Kind = 10 // run by the engine, between devices
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

// Sampling is one row of Sample's argument tensor: eight 32-bit words, laid out
// as msgl_sampling. Filters apply in the order top-k, top-p, min-p to the
// softmax of logits/Temperature; the token is drawn from what is left by
// inverse transform in order of token id.
type Sampling struct {
	Temperature float32 // 0: the token with the largest logit, the smallest id among equals
	TopP        float32 // in (0, 1]; 1: off
	MinP        float32 // in [0, 1); 0: off
	TopK        int32   // <= 0: off
	SeedLo      uint32  // the request's seed, low word
	SeedHi      uint32  // high word
	Position    uint32  // the sampled token's position in its sequence: the counter of the random numbers
	Slot        int32   // row of Sample's table of last tokens that is to hold the token; < 0: none
}

// SamplingWords is the number of 32-bit words of a Sampling.
const SamplingWords = 8

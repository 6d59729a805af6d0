package weights

import (
	"fmt"
	"strings"
)

// Type is how a tensor's values are stored.
type Type uint8

// The types that can be decoded. The layouts down to Q6K are those of ggml's quantization blocks; I8, U8 and F8 (e4m3)
// are those of safetensors files, which are the codes of quantized weights.
const (
	F32 Type = iota
	F16
	BF16
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2K
	Q3K
	Q4K
	Q5K
	Q6K
	I8
	U8
	F8
)

// ggmlTypes is the number of types that ggml has too, which come first.
const ggmlTypes = int(Q6K) + 1

// format describes a Type: rows are whole blocks of blockSize values in blockBytes bytes each. decode writes len(dst)
// values from src; split takes one block of a quantized type apart instead.
type format struct {
	name       string
	ggml       uint32
	blockSize  int
	blockBytes int
	decode     func(dst []float32, src []byte)
	split      func(to groups, src []byte)
	Grouping
}

// superBlock is the number of values in a block of the K types.
const superBlock = 256

var formats = [...]format{
	F32:  {"F32", 0, 1, 4, decodeF32, nil, Grouping{}},
	F16:  {"F16", 1, 1, 2, decodeF16, nil, Grouping{}},
	BF16: {"BF16", 30, 1, 2, decodeBF16, nil, Grouping{}},
	Q4_0: {"Q4_0", 2, 32, 18, nil, splitQ40, Grouping{Size: 32, Bits: 4, Zero: 8, Half: true}},
	Q4_1: {"Q4_1", 3, 32, 20, nil, splitQ41, Grouping{Size: 32, Bits: 4, Minima: true, Half: true}},
	Q5_0: {"Q5_0", 6, 32, 22, nil, splitQ50, Grouping{Size: 32, Bits: 5, Zero: 16, Half: true}},
	Q5_1: {"Q5_1", 7, 32, 24, nil, splitQ51, Grouping{Size: 32, Bits: 5, Minima: true, Half: true}},
	Q8_0: {"Q8_0", 8, 32, 34, nil, splitQ80, Grouping{Size: 32, Bits: 8, Zero: 128, Half: true}},
	Q2K:  {"Q2_K", 10, superBlock, 84, nil, splitQ2K, Grouping{Size: 16, Bits: 2, Minima: true}},
	Q3K:  {"Q3_K", 11, superBlock, 110, nil, splitQ3K, Grouping{Size: 16, Bits: 3, Zero: 4}},
	Q4K:  {"Q4_K", 12, superBlock, 144, nil, splitQ4K, Grouping{Size: 32, Bits: 4, Minima: true}},
	Q5K:  {"Q5_K", 13, superBlock, 176, nil, splitQ5K, Grouping{Size: 32, Bits: 5, Minima: true}},
	Q6K:  {"Q6_K", 14, superBlock, 210, nil, splitQ6K, Grouping{Size: 16, Bits: 6, Zero: 32}},
	I8:   {name: "I8", blockSize: 1, blockBytes: 1, decode: decodeI8},
	U8:   {name: "U8", blockSize: 1, blockBytes: 1, decode: decodeU8},
	F8:   {name: "F8_E4M3", blockSize: 1, blockBytes: 1, decode: decodeF8},
}

// foreignFormats names the ggml types that exist but can't be decoded here, for error messages.
var foreignFormats = map[uint32]string{
	9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
	22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
	35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}

// String returns the name of the type, which is ggml's or, for I8, U8 and F8, that of safetensors.
func (t Type) String() string {
	if int(t) < len(formats) {
		return formats[t].name
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// typeFromGGML finds the Type of a ggml type id.
func typeFromGGML(id uint32) (Type, error) {
	for t, format := range formats[:ggmlTypes] {
		if format.ggml == id {
			return Type(t), nil
		}
	}
	name, ok := foreignFormats[id]
	if !ok {
		name = "unknown"
	}
	return 0, fmt.Errorf("type %d (%s) is not supported: use a file with types %s", id, name, typeNames())
}

func typeNames() string {
	names := make([]string, ggmlTypes)
	for t, format := range formats[:ggmlTypes] {
		names[t] = format.name
	}
	return strings.Join(names, " ")
}

// storage returns the bytes that a tensor of this type and shape takes. It reports false when the last dimension
// isn't a whole number of blocks or the size passes limit, without overflow.
func (t Type) storage(shape []uint64, limit uint64) (uint64, bool) {
	format := &formats[t]
	cols := uint64(1)
	if len(shape) > 0 {
		cols = shape[len(shape)-1]
		shape = shape[:len(shape)-1]
	}
	if cols%uint64(format.blockSize) != 0 {
		return 0, false
	}
	total := cols / uint64(format.blockSize)
	for _, dim := range shape {
		if dim != 0 && total > limit/dim {
			return 0, false
		}
		total *= dim
	}
	if total > limit/uint64(format.blockBytes) {
		return 0, false
	}
	return total * uint64(format.blockBytes), true
}

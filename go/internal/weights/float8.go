package weights

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/float8"
)

// Weights of e4m3, as others quantize models to it:
//
//   - quant_method "fp8", of DeepSeek and Qwen: "X.weight" is F8_E4M3, [N, K], and "X.weight_scale_inv" has the scale of
//     each block of weight_block_size [128, 128]. https://huggingface.co/docs/transformers/quantization/finegrained_fp8
//   - quant_method "compressed-tensors", format "float-quantized": "X.weight_scale" has a scale for each row, or one for
//     all, or one for each block of block_structure. https://github.com/vllm-project/compressed-tensors
//
// A value is code * scale. How the model rounds activations is not followed: they are not rounded to 8 bits.
const (
	float8Method     = "fp8"
	compressedMethod = "compressed-tensors"
	inverseEnd       = weightEnd + "_scale_inv"
	inputScaleEnd    = ".input_scale" // of activations
)

// float8Group is what runs of columns that share a scale are a multiple of.
const float8Group = 64

// float8Config is what quantization_config says of weights of F8.
type float8Config struct {
	Block  []int                  `json:"weight_block_size,omitempty"`
	Groups map[string]moduleGroup `json:"config_groups,omitempty"`
}

// moduleGroup is a group of modules that are quantized alike.
type moduleGroup struct {
	Weights struct {
		Bits      int    `json:"num_bits"`
		Type      string `json:"type"`
		Symmetric *bool  `json:"symmetric"`
		Block     []int  `json:"block_structure"`
	} `json:"weights"`
}

// readFloat8 checks a quantization_config, and finds the size of the blocks if it has any.
func (q *quantization) readFloat8() error {
	for name, group := range q.Groups {
		w := group.Weights
		if w.Bits != 8 || w.Type != "float" || w.Symmetric != nil && !*w.Symmetric {
			return fmt.Errorf("%s: quantization_config, %s: weights of type %q and %d bits are not supported, only symmetric ones of type float and 8 bits",
				configFile, name, w.Type, w.Bits)
		}
		if w.Block != nil {
			q.Block = w.Block
		}
	}
	if q.Method == compressedMethod && len(q.Groups) == 0 {
		return fmt.Errorf("%s: quantization_config has no config_groups", configFile)
	}
	if q.Block != nil && (len(q.Block) != 2 || q.Block[0] < 1 || q.Block[1] < float8Group || q.Block[1]%float8Group != 0) {
		return fmt.Errorf("%s: quantization_config has blocks of %v values, only whole multiples of %d columns are supported", configFile, q.Block, float8Group)
	}
	q.Bits = 8
	return nil
}

// float8Scales are a weight's scales: one for each block of so many rows and columns.
type float8Scales struct {
	values     []float32
	rows, cols int // of a block
	across     int // blocks
}

func (s *float8Scales) at(row, col int) float32 { return s.values[row/s.rows*s.across+col/s.cols] }

// joinFloat8 gives each weight of F8 its scales. homes has the file of each tensor.
func (c *Checkpoint) joinFloat8(q *quantization, homes map[string]string) error {
	for _, name := range c.Names() {
		t := c.tensors[name]
		if t.kind != F8 {
			continue
		}
		base, ok := strings.CutSuffix(name, weightEnd)
		if !ok || len(t.shape) != 2 || q == nil || q.Method == ownMethod {
			return fmt.Errorf("%s: tensor %q: dtype %q is not supported: it is only for the weights of a model whose %s has a quantization_config of %s or %s",
				homes[name], name, t.kind, configFile, float8Method, compressedMethod)
		}
		scales, found := c.tensors[base+inverseEnd]
		if !found {
			scales, found = c.tensors[base+scaleEnd]
		}
		if !found {
			return fmt.Errorf("%s: tensor %q: its scales %q are missing", homes[name], name, base+inverseEnd)
		}
		var err error
		if t.float8, err = newFloat8Scales(t.shape, scales, q.Block); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", homes[name], name, err)
		}
		c.tensors[name] = t
		delete(c.tensors, scales.name)
		delete(c.tensors, base+inputScaleEnd)
	}
	return nil
}

// newFloat8Scales reads the scales of a weight of that shape: one, one for each row, or one for each block.
func newFloat8Scales(shape []int, scales Tensor, block []int) (*float8Scales, error) {
	if scales.kind != F32 && scales.kind != BF16 && scales.kind != F16 {
		return nil, fmt.Errorf("its scales %q are of dtype %v; want F32, BF16 or F16", scales.name, scales.kind)
	}
	s, n, k := &float8Scales{values: make([]float32, scales.Rows()*scales.Cols())}, shape[0], shape[1]
	switch {
	case len(s.values) == 1:
		s.rows, s.cols = n, k
	case slices.Equal(scales.shape, []int{n}), slices.Equal(scales.shape, []int{n, 1}):
		s.rows, s.cols = 1, k
	case block != nil && slices.Equal(scales.shape, []int{blocksIn(n, block[0]), blocksIn(k, block[1])}):
		s.rows, s.cols = block[0], block[1]
	default:
		return nil, fmt.Errorf("shape %v with scales %q of shape %v: want one, one for each row, or one for each block of weight_block_size (%v)",
			shape, scales.name, scales.shape, block)
	}
	s.across = blocksIn(k, s.cols)
	for r := range scales.Rows() {
		scales.Row(s.values[r*scales.Cols():], r)
	}
	return s, nil
}

// blocksIn returns how many blocks of a size there are in n values, the last of which may not be whole.
func blocksIn(n, of int) int { return (n + of - 1) / of }

// widenRow decodes one row of a weight of F8.
func (t Tensor) widenRow(dst []float32, row int) {
	codes := t.data[row*len(dst):][:len(dst)]
	for at := 0; at < len(dst); at += t.float8.cols {
		scale := t.float8.at(row, at)
		for i := at; i < min(at+t.float8.cols, len(dst)); i++ {
			dst[i] = float8.Float32(codes[i]) * scale
		}
	}
}

// HasFloat8 reports whether the tensor's values are stored as e4m3, with scales.
func (t Tensor) HasFloat8() bool { return t.float8 != nil }

// Float8 copies a row of a tensor that HasFloat8: the bits of its values, and the scales of each run of 64 columns. The
// error tells of a NaN, and of a scale that is not in [0, limit).
func (t Tensor) Float8(codes []uint8, scales []float32, row int, limit float32) error {
	copy(codes, t.data[row*t.Cols():][:t.Cols()])
	for i, code := range codes {
		if float8.IsNaN(code) {
			return fmt.Errorf("tensor %q, row %d: value %d is not a number", t.name, row, i)
		}
	}
	for g := range scales {
		scales[g] = t.float8.at(row, g*float8Group)
		if !(scales[g] >= 0 && scales[g] < limit) {
			return fmt.Errorf("tensor %q, row %d: scale %v is not in [0, %v)", t.name, row, scales[g], limit)
		}
	}
	return nil
}

// RoundFloat8 rounds one row of any tensor to e4m3: each run of 64 columns has the scale that makes its largest magnitude
// 448, the largest of e4m3. The error tells of a value that is not finite, and of a scale that is not below the limit.
func (t Tensor) RoundFloat8(codes []uint8, scales []float32, row int, limit float32) error {
	values := make([]float32, t.Cols())
	t.Row(values, row)
	for g := range scales {
		run := values[g*float8Group : min((g+1)*float8Group, len(values))]
		var most float32
		for _, x := range run {
			most = max(most, x, -x)
		}
		scales[g] = most / float8.Largest
		if !(scales[g] < limit) {
			return fmt.Errorf("tensor %q, row %d: the values from %d on, of up to %v, can't be quantized", t.name, row, g*float8Group, most)
		}
		for i, x := range run {
			codes[g*float8Group+i] = float8.Round(x / max(scales[g], math.SmallestNonzeroFloat32))
		}
	}
	return nil
}

func decodeF8(dst []float32, src []byte) {
	for i, b := range src {
		dst[i] = float8.Float32(b)
	}
}

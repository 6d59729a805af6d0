// # Quantized models
//
// Convert writes, and Open reads, quantized models in this form. It is a Hugging Face directory whose config.json has
//
//	"quantization_config": {"quant_method": "minisgl", "bits": 8, "group_size": 32}
//
// with 8 or 4 bits. In the safetensors files, the matrices of projections, of embeddings and of the output head are
// quantized: a matrix "X.weight" of shape [N, K], K being a multiple of 32, is two tensors. Each run of 32 values of a
// row, a group, has one scale and 32 codes:
//
//   - "X.weight_scale", F16 of shape [N, K/32]: the scales, in the order of the groups.
//   - "X.weight", with 8 bits: I8 of shape [N, K]. A value is code * scale.
//   - "X.weight", with 4 bits: U8 of shape [N, K/2], 16 bytes for each group. Byte i of a group has the code of value i
//     in its low half and the code of value i+16 in its high half. A value is (code - 8) * scale.
//
// With 4 bits, embeddings (embed_tokens) and the output head (lm_head) still have 8: they decide the most. All other
// tensors are as they were: vectors, routers of experts, and matrices whose rows are not whole groups.
//
// The groups are the blocks of ggml's Q8_0 and Q4_0 with codes and scales apart, and Convert chooses codes and scales by
// ggml's rules, so a weight has the same values here as in a GGUF file. With 8 bits, the scale is the largest magnitude
// divided by 127. With 4 bits, it is the value of the largest magnitude, with its sign, divided by -8. A code is a value
// divided by the scale, before that is rounded to float16, and rounded to the nearest integer.
package weights

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	ownMethod  = "minisgl"
	groupSize  = 32 // values that share a scale
	scaleBytes = 2
	weightEnd  = ".weight"
	scaleEnd   = weightEnd + "_scale"
)

// quantization is the quantization_config of config.json.
type quantization struct {
	Method    string `json:"quant_method"`
	Bits      int    `json:"bits"`
	GroupSize int    `json:"group_size"`
	float8Config
}

// readQuantization returns the quantization_config of a config.json, nil when there is none: our own, or one with
// weights of F8. It refuses others.
func readQuantization(config []byte) (*quantization, error) {
	var fields struct {
		Quantization json.RawMessage `json:"quantization_config"`
	}
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	if len(fields.Quantization) == 0 || string(fields.Quantization) == "null" {
		return nil, nil
	}
	var q quantization
	err := json.Unmarshal(fields.Quantization, &q)
	switch {
	case !slices.Contains([]string{ownMethod, float8Method, compressedMethod}, q.Method) && (err == nil || q.Method != ""):
		return nil, fmt.Errorf("%s: the weights are quantized by quant_method %q, only %q, %q and %q are supported: take the model that "+
			"is not quantized (and use minisgl convert), or a GGUF file", configFile, q.Method, ownMethod, float8Method, compressedMethod)
	case err != nil:
		return nil, fmt.Errorf("%s: quantization_config: %w", configFile, err)
	case q.Method != ownMethod:
		return &q, q.readFloat8()
	case q.Bits != 8 && q.Bits != 4 || q.GroupSize != groupSize:
		return nil, fmt.Errorf("%s: quantization_config has %d bits in groups of %d, only 8 or 4 bits in groups of %d are supported",
			configFile, q.Bits, q.GroupSize, groupSize)
	}
	return &q, nil
}

// joinScales makes one tensor of the codes and the scales of each quantized weight. homes has the file of each tensor.
func (c *Checkpoint) joinScales(q *quantization, homes map[string]string) error {
	if err := c.joinFloat8(q, homes); err != nil {
		return err
	}
	for _, name := range c.Names() {
		codes := c.tensors[name]
		if codes.kind != I8 && codes.kind != U8 {
			continue
		}
		t, err := c.join(q, codes)
		if err != nil {
			return fmt.Errorf("%s: tensor %q: %w", homes[name], name, err)
		}
		c.tensors[name] = t
		delete(c.tensors, strings.TrimSuffix(name, weightEnd)+scaleEnd)
	}
	for _, name := range c.Names() {
		if q != nil && strings.HasSuffix(name, scaleEnd) {
			return fmt.Errorf("%s: tensor %q has scales, but %q has no codes", homes[name], name, strings.TrimSuffix(name, scaleEnd)+weightEnd)
		}
	}
	return nil
}

// join checks one weight's codes against its scales.
func (c *Checkpoint) join(q *quantization, codes Tensor) (Tensor, error) {
	base, ok := strings.CutSuffix(codes.name, weightEnd)
	if !ok || q == nil || q.Method != ownMethod {
		return Tensor{}, fmt.Errorf("dtype %q is not supported: it is only for the weights of a model whose %s has a quantization_config of %s",
			codes.kind, configFile, ownMethod)
	}
	if codes.kind == U8 && q.Bits == 8 {
		return Tensor{}, fmt.Errorf("codes of 4 bits (U8) in a model of 8 bits")
	}
	scales, ok := c.tensors[base+scaleEnd]
	if !ok {
		return Tensor{}, fmt.Errorf("its scales %q are missing", base+scaleEnd)
	}
	if len(codes.shape) != 2 {
		return Tensor{}, fmt.Errorf("codes of shape %v are not those of a matrix", codes.shape)
	}
	t := Tensor{name: codes.name, kind: Q8_0, shape: codes.shape, data: codes.data, scales: scales.data}
	if codes.kind == U8 {
		t.kind, t.shape = Q4_0, []int{codes.shape[0], 2 * codes.shape[1]}
	}
	rows, cols := t.shape[0], t.shape[1]
	if cols%groupSize != 0 {
		return Tensor{}, fmt.Errorf("%v codes of shape %v: rows of %d values are not whole groups of %d", codes.kind, codes.shape, cols, groupSize)
	}
	if want := []int{rows, cols / groupSize}; scales.kind != F16 || !slices.Equal(scales.shape, want) {
		return Tensor{}, fmt.Errorf("%v codes of shape %v need F16 scales of shape %v, but %q is %v of shape %v",
			codes.kind, codes.shape, want, base+scaleEnd, scales.kind, scales.shape)
	}
	return t, nil
}

// expandRow decodes one row of a tensor whose scales lie apart.
func (t Tensor) expandRow(dst []float32, row int) {
	var codes [groupSize]byte
	var scale [1]float32
	for g := range len(dst) / groupSize {
		scale[0] = t.splitGroup(codes[:], row*len(dst)/groupSize+g)
		groups{codes[:], scale[:], nil}.values(dst[g*groupSize:][:groupSize], formats[t.kind].Grouping)
	}
}

// splitApart takes apart one row of a tensor whose scales lie apart.
func (t Tensor) splitApart(to groups, row int) {
	n := len(to.codes) / groupSize
	for g := range n {
		to.scales[g] = t.splitGroup(to.codes[g*groupSize:][:groupSize], row*n+g)
	}
}

// splitGroup takes apart one group of such a tensor and returns its scale.
func (t Tensor) splitGroup(codes []byte, group int) float32 {
	if t.kind == Q4_0 {
		splitHalves(codes, t.data[group*groupSize/2:][:groupSize/2])
	} else {
		splitSigned(codes, t.data[group*groupSize:][:groupSize])
	}
	return half(t.scales[group*scaleBytes:])
}

func decodeI8(dst []float32, src []byte) {
	for i, b := range src {
		dst[i] = float32(int8(b))
	}
}

func decodeU8(dst []float32, src []byte) {
	for i, b := range src {
		dst[i] = float32(b)
	}
}

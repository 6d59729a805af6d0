package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

const (
	blockConfig   = `{"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 64]}}`
	channelConfig = `{"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
		"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "symmetric": true, "strategy": "channel", "block_structure": null}}}}}`
)

// float8Files are those of a model with a weight "a.weight" of e4m3 whose entries are given; data follows the header.
func float8Files(config, entries string, data []byte) map[string][]byte {
	return map[string][]byte{configFile: []byte(config), singleFile: append(safetensorsFile("{"+entries+"}", 0), data...)}
}

// float8Data is 3 rows of 80 codes of 1 (0x38), but for 448, -1.125 and the smallest, 2^-9, and then F32 scales.
func float8Data(scales ...float32) []byte {
	data := slices.Repeat([]byte{0x38}, 3*80)
	data[0], data[79], data[2*80+64] = 0x7e, 0xb9, 0x01
	for _, scale := range scales {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(scale))
	}
	return data
}

var float8Codes = tensorEntry("a.weight", "F8_E4M3", "3,80", "0,240")

// TestFloat8Read decodes codes and scales that are written down here: the last block of rows and of columns is not whole.
func TestFloat8Read(t *testing.T) {
	for _, test := range []struct {
		name, config, scales string
		values               []float32
		want                 [3][3]float32 // of rows 0, 1, 2: columns 0, 64, 79
		groups               [3][2]float32
	}{
		{"blocks", blockConfig, tensorEntry("a.weight_scale_inv", "F32", "2,2", "240,256"), []float32{0.5, 2, 4, 8},
			[3][3]float32{{224, 2, -2.25}, {0.5, 2, 2}, {4, 0.015625, 8}}, [3][2]float32{{0.5, 2}, {0.5, 2}, {4, 8}}},
		{"rows", channelConfig, tensorEntry("a.weight_scale", "F32", "3,1", "240,252"), []float32{0.5, 2, 4},
			[3][3]float32{{224, 0.5, -0.5625}, {2, 2, 2}, {4, 0.0078125, 4}}, [3][2]float32{{0.5, 0.5}, {2, 2}, {4, 4}}},
		{"one", channelConfig, tensorEntry("a.weight_scale", "F32", "", "240,244"), []float32{2},
			[3][3]float32{{896, 2, -2.25}, {2, 2, 2}, {2, 0.00390625, 2}}, [3][2]float32{{2, 2}, {2, 2}, {2, 2}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := openTest(t, writeFiles(t, float8Files(test.config, float8Codes+","+test.scales, float8Data(test.values...))))
			tensor := tensorOf(t, c, "a.weight")
			if !slices.Equal(c.Names(), []string{"a.weight"}) || !tensor.HasFloat8() || !slices.Equal(tensor.Shape(), []int{3, 80}) {
				t.Errorf("tensors %v, e4m3 %v, shape %v", c.Names(), tensor.HasFloat8(), tensor.Shape())
			}
			row, codes, scales := make([]float32, 80), make([]uint8, 80), make([]float32, 2)
			for r, want := range test.want {
				tensor.Row(row, r)
				if got := [3]float32{row[0], row[64], row[79]}; got != want {
					t.Errorf("row %d: %v, want %v", r, got, want)
				}
				if err := tensor.Float8(codes, scales, r, 128); err != nil || [2]float32(scales) != test.groups[r] || codes[1] != 0x38 {
					t.Errorf("row %d: scales %v, code %#x, %v; want %v", r, scales, codes[1], err, test.groups[r])
				}
			}
			if allocs := testing.AllocsPerRun(10, func() { tensor.Row(row, 0) }); allocs != 0 {
				t.Errorf("Row allocates %v times, want 0", allocs)
			}
			if err := tensor.Float8(codes, scales, 2, 2); err == nil {
				t.Error("scales that are not below the limit were given")
			}
		})
	}
}

func TestFloat8Refused(t *testing.T) {
	scales := tensorEntry("a.weight_scale_inv", "F32", "2,2", "240,256")
	data := float8Data(1, 1, 1, 1)
	entries := func(codes, scales string) map[string][]byte { return float8Files(blockConfig, codes+","+scales, data) }
	config := func(text string) map[string][]byte {
		return float8Files(`{"quantization_config": `+text+`}`, float8Codes+","+scales, data)
	}
	groups := func(weights string) map[string][]byte {
		return config(`{"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": ` + weights + `}}}`)
	}
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  []string
	}{
		{"no quantization_config", config("null"), []string{singleFile, `tensor "a.weight"`, `dtype "F8_E4M3" is not supported`}},
		{"our own method", config(`{"quant_method": "minisgl", "bits": 8, "group_size": 32}`), []string{`tensor "a.weight"`, "fp8 or compressed-tensors"}},
		{"block of three sizes", config(`{"quant_method": "fp8", "weight_block_size": [1, 2, 3]}`), []string{configFile, "blocks of [1 2 3]"}},
		{"narrow blocks", config(`{"quant_method": "fp8", "weight_block_size": [128, 32]}`), []string{configFile, "whole multiples of 64 columns"}},
		{"blocks of text", config(`{"quant_method": "fp8", "weight_block_size": "128"}`), []string{configFile, "quantization_config"}},
		{"no groups", config(`{"quant_method": "compressed-tensors"}`), []string{configFile, "no config_groups"}},
		{"integers", groups(`{"num_bits": 8, "type": "int"}`), []string{configFile, `type "int" and 8 bits`}},
		{"four bits", groups(`{"num_bits": 4, "type": "float"}`), []string{configFile, `type "float" and 4 bits`}},
		{"zero points", groups(`{"num_bits": 8, "type": "float", "symmetric": false}`), []string{configFile, "only symmetric ones"}},
		{"block_structure", groups(`{"num_bits": 8, "type": "float", "block_structure": "2x64"}`), []string{configFile, "block_structure"}},
		{"no scales", float8Files(blockConfig, float8Codes, data[:240]), []string{singleFile, `"a.weight_scale_inv" are missing`}},
		{"vector", entries(tensorEntry("a.weight", "F8_E4M3", "240", "0,240"), scales), []string{singleFile, `tensor "a.weight": dtype "F8_E4M3"`}},
		{"not a weight", entries(tensorEntry("a.bias", "F8_E4M3", "3,80", "0,240"), scales), []string{`tensor "a.bias": dtype "F8_E4M3"`}},
		{"scales of another shape", entries(float8Codes, tensorEntry("a.weight_scale_inv", "F32", "4,1", "240,256")), []string{"shape [3 80]", "of shape [4 1]", "weight_block_size ([2 64])"}},
		{"scales across", entries(float8Codes, tensorEntry("a.weight_scale_inv", "F32", "1,4", "240,256")), []string{"shape [3 80]", "of shape [1 4]"}},
		{"scales of another type", entries(float8Codes, tensorEntry("a.weight_scale_inv", "I8", "2,8", "240,256")), []string{`"a.weight_scale_inv" are of dtype I8`}},
		{"scales without codes", entries(tensorEntry("a.weight", "BF16", "3,40", "0,240"), tensorEntry("a.weight_scale", "F32", "4,1", "240,256")), []string{`"a.weight_scale" has scales, but "a.weight" has no codes`}},
	} {
		t.Run(test.name, func(t *testing.T) { refused(t, writeFiles(t, test.files), test.want...) })
	}
}

// TestFloat8NaN: what is not a number is told of when it is read as e4m3.
func TestFloat8NaN(t *testing.T) {
	data := float8Data(1, 1, 1, 1)
	data[90] = 0xff
	c := openTest(t, writeFiles(t, float8Files(blockConfig, float8Codes+","+tensorEntry("a.weight_scale_inv", "F32", "2,2", "240,256"), data)))
	err := tensorOf(t, c, "a.weight").Float8(make([]uint8, 80), make([]float32, 2), 1, 128)
	if want := `tensor "a.weight", row 1: value 10 is not a number`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRoundFloat8: each run of 64 values has the scale that its largest magnitude asks for.
func TestRoundFloat8(t *testing.T) {
	values := slices.Repeat([]float32{0}, 70)
	values[0], values[1], values[2], values[64], values[69] = -896, 1, 15, 7, 3.5
	var bad float32
	tensor := Tensor{name: "x", kind: F32, shape: []int{1, 70}, make: func(dst []float32, _ int) {
		copy(dst, values)
		dst[3] = bad
	}}
	codes, scales := make([]uint8, 70), make([]float32, 2)
	if err := tensor.RoundFloat8(codes, scales, 0, 128); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%v %#x", scales, []uint8{codes[0], codes[1], codes[2], codes[3], codes[64], codes[69]})
	// -448, 1/2, 7.5, 0; 448, 224
	if want := "[2 0.015625] 0xfe304f007e76"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad = range []float32{float32(math.NaN()), float32(math.Inf(-1)), 128 * 448} {
		if err := tensor.RoundFloat8(codes, scales, 0, 128); err == nil {
			t.Errorf("%v was rounded", bad)
		}
	}
}

package weights

import (
	"fmt"
	"slices"
	"testing"
)

const ownConfig = `{"quantization_config": {"quant_method": "minisgl", "bits": %d, "group_size": 32}}`

// quantizedFiles are those of a model of some bits with a weight "a.weight" of 2 × 64 values, whose headers edit may
// change.
func quantizedFiles(bits int, codes, scales string, size int) map[string][]byte {
	header := "{" + codes
	if scales != "" {
		header += "," + scales
	}
	return map[string][]byte{configFile: fmt.Appendf(nil, ownConfig, bits), singleFile: safetensorsFile(header+"}", size)}
}

var (
	codes8   = tensorEntry("a.weight", "I8", "2,64", "0,128")
	codes4   = tensorEntry("a.weight", "U8", "2,32", "0,64")
	scalesOf = map[int]string{
		8: tensorEntry("a.weight_scale", "F16", "2,2", "128,136"),
		4: tensorEntry("a.weight_scale", "F16", "2,2", "64,72"),
	}
)

// TestQuantizedRead decodes codes and scales that are written down here.
func TestQuantizedRead(t *testing.T) {
	one, two := []byte{0x00, 0x3c}, []byte{0x00, 0x40} // as float16
	for _, test := range []struct {
		bits          int
		codes, scales string
		at            int // in the file's data: the first code of row 1's second group
		code          byte
		index         []int // in row 1
		want          []float32
	}{
		{8, codes8, scalesOf[8], 96, 0xfe, []int{0, 32, 33}, []float32{0, -4, 0}},
		{4, codes4, scalesOf[4], 48, 0xf3, []int{0, 32, 33, 48, 63}, []float32{-8, -10, -16, 14, -16}},
	} {
		files := quantizedFiles(test.bits, test.codes, test.scales, 0)
		size := 2*64*test.bits/8 + 8
		data := make([]byte, size)
		data[test.at] = test.code
		copy(data[size-4:], one)
		copy(data[size-2:], two)
		files[singleFile] = append(files[singleFile], data...)
		c := openTest(t, writeFiles(t, files))
		tensor := tensorOf(t, c, "a.weight")
		row := make([]float32, 64)
		tensor.Row(row, 1)
		for i, index := range test.index {
			if row[index] != test.want[i] {
				t.Errorf("%d bits: value %d is %v, want %v", test.bits, index, row[index], test.want[i])
			}
		}
		if !slices.Equal(tensor.Shape(), []int{2, 64}) || tensor.Bytes() != int64(size) || !slices.Equal(c.Names(), []string{"a.weight"}) {
			t.Errorf("%d bits: shape %v, %d bytes, tensors %v", test.bits, tensor.Shape(), tensor.Bytes(), c.Names())
		}
		if allocs := testing.AllocsPerRun(10, func() { tensor.Row(row, 0) }); allocs != 0 {
			t.Errorf("%d bits: Row allocates %v times, want 0", test.bits, allocs)
		}
		for _, outside := range []int{-1, 2} {
			if !panics(func() { tensor.Row(row, outside) }) {
				t.Errorf("%d bits: Row(%d) of 2 rows returned", test.bits, outside)
			}
		}
	}
}

func TestQuantizedRefused(t *testing.T) {
	config := func(text string) map[string][]byte {
		files := quantizedFiles(8, codes8, scalesOf[8], 136)
		files[configFile] = []byte(text)
		return files
	}
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  []string
	}{
		{"another's method", config(`{"quantization_config": {"quant_method": "gptq", "bits": "four"}}`), []string{configFile, `quant_method "gptq"`, "minisgl convert"}},
		{"no method", config(`{"quantization_config": {"bits": 8}}`), []string{configFile, `quant_method ""`}},
		{"not an object", config(`{"quantization_config": 8}`), []string{configFile, "quantization_config", "number"}},
		{"configuration not an object", config(`[]`), []string{configFile}},
		{"bits", config(`{"quantization_config": {"quant_method": "minisgl", "bits": 3, "group_size": 32}}`), []string{configFile, "3 bits in groups of 32"}},
		{"group", config(`{"quantization_config": {"quant_method": "minisgl", "bits": 4, "group_size": 128}}`), []string{configFile, "4 bits in groups of 128"}},
		{"no quantization_config", config(`{"quantization_config": null}`), []string{singleFile, `tensor "a.weight"`, `dtype "I8" is not supported`}},
		{"not a weight", quantizedFiles(8, tensorEntry("ids", "I8", "2,64", "0,128"), "", 128), []string{singleFile, `tensor "ids": dtype "I8"`}},
		{"4 bits in 8", quantizedFiles(8, codes4, scalesOf[4], 72), []string{singleFile, `tensor "a.weight": codes of 4 bits`}},
		{"no scales", quantizedFiles(8, codes8, "", 128), []string{singleFile, `tensor "a.weight"`, `"a.weight_scale" are missing`}},
		{"no codes", quantizedFiles(8, tensorEntry("a.weight", "F16", "2,32", "0,128"), scalesOf[8], 136), []string{singleFile, `"a.weight_scale" has scales, but "a.weight" has no codes`}},
		{"vector", quantizedFiles(8, tensorEntry("a.weight", "I8", "128", "0,128"), scalesOf[8], 136), []string{singleFile, "codes of shape [128] are not those of a matrix"}},
		{"part of a group", quantizedFiles(8, tensorEntry("a.weight", "I8", "4,32", "0,128"), tensorEntry("a.weight_scale", "F16", "2,2", "128,136"), 136), []string{"I8 codes of shape [4 32] need F16 scales of shape [4 1]", "F16 of shape [2 2]"}},
		{"rows of no groups", quantizedFiles(4, tensorEntry("a.weight", "U8", "2,24", "0,48"), tensorEntry("a.weight_scale", "F16", "2,2", "48,56"), 56), []string{"U8 codes of shape [2 24]: rows of 48 values are not whole groups of 32"}},
		{"scales of another type", quantizedFiles(8, codes8, tensorEntry("a.weight_scale", "F32", "2,2", "128,144"), 144), []string{"need F16 scales of shape [2 2]", "F32 of shape [2 2]"}},
		{"scales cut", quantizedFiles(8, codes8, scalesOf[8], 134), []string{singleFile, `tensor "a.weight_scale": data_offsets [128 136] pass the end of the data (134 bytes, 2 too few)`}},
		{"codes cut", quantizedFiles(4, codes4, "", 63), []string{singleFile, `tensor "a.weight": data_offsets [0 64] pass the end of the data (63 bytes, 1 too few)`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, writeFiles(t, test.files), test.want...)
		})
	}
}

// TestQuantizedCut opens every prefix of a converted model's file.
func TestQuantizedCut(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, configFile, fmt.Appendf(nil, ownConfig, 4))
	file := quantizedFiles(4, codes4, scalesOf[4], 72)[singleFile]
	for size := 1; size < len(file); size++ {
		writeFile(t, dir, singleFile, file[:size])
		if c, err := Open(dir); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted: %v", size, len(file), c.Close())
		}
	}
}

// FuzzQuantized joins what any header says, as Open does with a file.
func FuzzQuantized(f *testing.F) {
	f.Add(quantizedFiles(8, codes8, scalesOf[8], 136)[singleFile], 8)
	f.Add(quantizedFiles(4, codes4, scalesOf[4], 72)[singleFile], 4)
	f.Add(float8Files("", float8Codes+","+tensorEntry("a.weight_scale_inv", "F32", "2,2", "240,256"), float8Data(1, 2, 3, 4))[singleFile], 8)
	f.Fuzz(func(t *testing.T, data []byte, bits int) {
		stored, err := parseSafetensors(data)
		if err != nil {
			return
		}
		for _, q := range []*quantization{{Method: ownMethod, Bits: bits}, {Method: float8Method, float8Config: float8Config{Block: []int{2, 64}}}} {
			c := &Checkpoint{tensors: make(map[string]Tensor)}
			for _, s := range stored {
				c.tensors[s.name] = Tensor{name: s.name, kind: s.kind, shape: s.shape, data: s.data}
			}
			if err := c.joinScales(q, nil); err != nil {
				continue
			}
			for _, name := range c.Names() {
				checkRows(tensorOf(t, c, name))
			}
		}
	})
}

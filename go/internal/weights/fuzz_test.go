package weights

import (
	"encoding/json"
	"math"
	"testing"
)

// checkStored decodes rows of every tensor that a header describes.
func checkStored(t *testing.T, tensors []stored) {
	t.Helper()
	for _, s := range tensors {
		if uint64(len(s.data)) != s.size() {
			t.Fatalf("%q has %d bytes, its shape %v takes %d", s.name, len(s.data), s.shape, s.size())
		}
		checkRows(Tensor{name: s.name, kind: s.kind, shape: s.shape, data: s.data})
	}
}

// checkRows decodes the first and last row, which panics when the tensor's bytes don't hold them.
func checkRows(tensor Tensor) {
	row := make([]float32, tensor.Cols())
	tensor.Row(row, 0)
	tensor.Row(row, tensor.Rows()-1)
}

func FuzzGGUF(f *testing.F) {
	f.Add(newLlama().bytes())
	typed := newLlama()
	typed.alignment = 64
	typed.tensors = []testTensor{{"token_embd.weight", []uint64{32, 2}, 8, 0, make([]byte, 68)}}
	typed.array("strings", kindString, 2, ggufString(ggufString(nil, "a"), "b"))
	typed.pair("flag", kindBool, []byte{1})
	f.Add(typed.bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		metadata, tensors, err := parseGGUF(data)
		if err != nil {
			return
		}
		checkStored(t, tensors)
		for _, key := range metadata.Keys() {
			metadata.String(key)
			metadata.Strings(key)
			metadata.Ints(key)
			metadata.Floats(key)
			if n, ok := metadata.Uint(key); ok && n <= math.MaxInt {
				if m, ok := metadata.Int(key); !ok || uint64(m) != n {
					t.Fatalf("%q is %d as Uint and %d as Int", key, n, m)
				}
			}
		}
		c := &Checkpoint{tensors: make(map[string]Tensor)}
		if err := c.loadGGUF(data); err != nil {
			return
		}
		if !json.Valid(c.Config) {
			t.Fatalf("config is not JSON: %s", c.Config)
		}
		for _, name := range c.Names() {
			tensor, _ := c.Tensor(name)
			checkRows(tensor)
		}
	})
}

func FuzzSafetensors(f *testing.F) {
	f.Add(oneTensor("a", 1))
	f.Add(safetensorsFile(`{"__metadata__":{"format":"pt"},`+tensorEntry("a", "BF16", "2,3", "0,12")+","+
		tensorEntry("b", "F16", "", "12,14")+"}", 14))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := parseSafetensors(data)
		if err != nil {
			return
		}
		checkStored(t, tensors)
	})
}

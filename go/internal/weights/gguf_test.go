package weights

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ggufBuilder writes GGUF files, right ones and wrong ones.
type ggufBuilder struct {
	version   uint32
	alignment uint64 // of the data; written as metadata when not the default
	pairs     []byte
	numPairs  uint64
	tensors   []testTensor
}

type testTensor struct {
	name   string
	shape  []uint64 // GGUF order
	kind   uint32
	offset uint64
	data   []byte
}

var le = binary.LittleEndian

func ggufString(out []byte, s string) []byte {
	return append(le.AppendUint64(out, uint64(len(s))), s...)
}

// pair appends a metadata pair with a value already in its bytes.
func (b *ggufBuilder) pair(key string, k kind, raw []byte) {
	b.numPairs++
	b.pairs = append(le.AppendUint32(ggufString(b.pairs, key), uint32(k)), raw...)
}

func (b *ggufBuilder) uint(key string, n uint32) { b.pair(key, kindUint32, le.AppendUint32(nil, n)) }

func (b *ggufBuilder) float(key string, x float32) {
	b.pair(key, kindFloat32, le.AppendUint32(nil, math.Float32bits(x)))
}

func (b *ggufBuilder) text(key, s string) { b.pair(key, kindString, ggufString(nil, s)) }

// array appends a metadata pair with an array of count elements already in their bytes.
func (b *ggufBuilder) array(key string, k kind, count uint64, raw []byte) {
	b.pair(key, kindArray, append(le.AppendUint64(le.AppendUint32(nil, uint32(k)), count), raw...))
}

// tensor appends a float32 tensor at the next aligned offset.
func (b *ggufBuilder) tensor(name string, values []float32, shape ...uint64) {
	data := make([]byte, 0, 4*len(values))
	for _, x := range values {
		data = le.AppendUint32(data, math.Float32bits(x))
	}
	var offset uint64
	if n := len(b.tensors); n > 0 {
		offset = alignUp(b.tensors[n-1].offset+uint64(len(b.tensors[n-1].data)), b.alignment)
	}
	b.tensors = append(b.tensors, testTensor{name, shape, 0, offset, data})
}

func alignUp(n, alignment uint64) uint64 { return (n + alignment - 1) / alignment * alignment }

func (b *ggufBuilder) bytes() []byte {
	pairs, numPairs := b.pairs, b.numPairs
	if b.alignment != defaultAlignment {
		with := *b
		with.uint("general.alignment", uint32(b.alignment))
		pairs, numPairs = with.pairs, with.numPairs
	}
	out := le.AppendUint32([]byte(ggufMagic), b.version)
	out = le.AppendUint64(le.AppendUint64(out, uint64(len(b.tensors))), numPairs)
	out = append(out, pairs...)
	for _, t := range b.tensors {
		out = le.AppendUint32(ggufString(out, t.name), uint32(len(t.shape)))
		for _, dim := range t.shape {
			out = le.AppendUint64(out, dim)
		}
		out = le.AppendUint64(le.AppendUint32(out, t.kind), t.offset)
	}
	base := alignUp(uint64(len(out)), b.alignment)
	for _, t := range b.tensors {
		if t.data == nil {
			continue
		}
		end := base + t.offset + uint64(len(t.data))
		if uint64(len(out)) < end {
			out = append(out, make([]byte, end-uint64(len(out)))...)
		}
		copy(out[base+t.offset:], t.data)
	}
	return out
}

// newLlama builds a smallest llama file: 2 heads of 4 values, one layer, only its q tensor.
func newLlama() *ggufBuilder {
	b := &ggufBuilder{version: 3, alignment: defaultAlignment}
	b.text("general.architecture", "llama")
	b.uint("llama.block_count", 1)
	b.uint("llama.embedding_length", 8)
	b.uint("llama.feed_forward_length", 16)
	b.uint("llama.context_length", 32)
	b.uint("llama.attention.head_count", 2)
	b.float("llama.attention.layer_norm_rms_epsilon", 1e-5)
	b.tensor("token_embd.weight", ramp(24), 8, 3)
	b.tensor("blk.0.attn_q.weight", ramp(64), 8, 8)
	return b
}

func ramp(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

func writeFile(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestA42_GGUFAccepted(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*ggufBuilder)
	}{
		{"version 3", func(*ggufBuilder) {}},
		{"version 2", func(b *ggufBuilder) { b.version = 2 }},
		{"alignment 64", func(b *ggufBuilder) { b.alignment = 64; b.tensors[1].offset = 128 }},
		{"rope_freqs without scaling", func(b *ggufBuilder) { b.tensor(ropeFactors, []float32{1, 1}, 2) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newLlama()
			test.edit(b)
			c := openTest(t, writeFile(t, t.TempDir(), "m.gguf", b.bytes()))
			want := []string{"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight"}
			if diff := cmp.Diff(want, c.Names()); diff != "" {
				t.Fatalf("names differ (-want +got):\n%s", diff)
			}
			q, _ := c.Tensor(want[1])
			var firsts []float32
			row := make([]float32, 8)
			for i := range 8 {
				q.Row(row, i)
				firsts = append(firsts, row[0]/8)
			}
			if diff := cmp.Diff([]float32{0, 2, 1, 3, 4, 6, 5, 7}, firsts); diff != "" {
				t.Errorf("order of q's rows differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestA42_GGUFRefused(t *testing.T) {
	huge := uint64(1) << 62
	for _, test := range []struct {
		name string
		edit func(*ggufBuilder)
		want string
	}{
		{"version 1", func(b *ggufBuilder) { b.version = 1 }, "version 1 is not supported"},
		{"big-endian", func(b *ggufBuilder) { b.version = 3 << 24 }, "big-endian GGUF file (version 3)"},
		{"other architecture", func(b *ggufBuilder) {
			*b = ggufBuilder{version: 3, alignment: 32}
			b.text("general.architecture", "gpt9")
		},
			`architecture "gpt9" is not supported, only gemma3, llama, mistral3, phi3, qwen2, qwen3, qwen3moe`},
		{"no architecture", func(b *ggufBuilder) { *b = ggufBuilder{version: 3, alignment: 32} }, "lacks general.architecture"},
		{"key twice", func(b *ggufBuilder) { b.uint("llama.block_count", 1) }, `key "llama.block_count" stands twice`},
		{"alignment 48", func(b *ggufBuilder) { b.uint("general.alignment", 48) }, "alignment is 48, not a power of two"},
		{"alignment 0", func(b *ggufBuilder) { b.uint("general.alignment", 0) }, "alignment is 0, not a power of two"},
		{"long string", func(b *ggufBuilder) { b.pair("s", kindString, le.AppendUint64(nil, huge)) }, "longer than"},
		{"long array", func(b *ggufBuilder) { b.array("a", kindInt32, huge, nil) }, "array elements don't fit"},
		{"array of arrays", func(b *ggufBuilder) { b.array("a", kindArray, 1, make([]byte, 16)) }, "arrays of arrays"},
		{"unknown kind", func(b *ggufBuilder) { b.pair("a", 77, nil) }, "unknown kind 77"},
		{"bad boolean", func(b *ggufBuilder) { b.pair("a", kindBool, []byte{2}) }, "boolean holds 2"},
		{"unknown type", func(b *ggufBuilder) { b.tensors[1].kind = 99 }, `"blk.0.attn_q.weight": type 99 (unknown)`},
		{"foreign type", func(b *ggufBuilder) { b.tensors[1].kind = 16 }, `type 16 (IQ2_XXS) is not supported`},
		{"partial block", func(b *ggufBuilder) { b.tensors[1].kind = 8 }, "not whole blocks of 32"},
		{"no dimensions", func(b *ggufBuilder) { b.tensors[0].shape = nil }, "has 0 dimensions"},
		{"five dimensions", func(b *ggufBuilder) { b.tensors[0].shape = []uint64{1, 1, 1, 1, 1} }, "has 5 dimensions"},
		{"dimension 0", func(b *ggufBuilder) { b.tensors[0].shape = []uint64{8, 0} }, "has no values"},
		{"overflowing shape", func(b *ggufBuilder) { b.tensors[0].shape = []uint64{1 << 32, 1 << 32, 1 << 32} }, "takes more than the file's"},
		{"unaligned offset", func(b *ggufBuilder) { b.tensors[1].offset++ }, "not a multiple of the alignment 32"},
		{"overlap", func(b *ggufBuilder) { b.tensors[1].offset = 64 }, `inside tensor "token_embd.weight", which ends at 96`},
		{"offset beyond the file", func(b *ggufBuilder) { b.tensors[1].data = nil; b.tensors[1].offset = huge }, "needs 256 bytes at offset 4611686018427387904"},
		{"foreign tensor", func(b *ggufBuilder) { b.tensor("blk.0.attn_q_norm.weight", ramp(4), 4) }, `"blk.0.attn_q_norm.weight" is not known`},
		{"layer beyond", func(b *ggufBuilder) { b.tensors[1].name = "blk.1.attn_q.weight" }, "belongs to layer 1 of a model with 1"},
		{"layer with a sign", func(b *ggufBuilder) { b.tensors[1].name = "blk.+0.attn_q.weight" }, "is not known"},
		{"tensor twice", func(b *ggufBuilder) { b.tensors[1].name = "token_embd.weight" }, "stands twice"},
		{"no embedding", func(b *ggufBuilder) { b.tensors = b.tensors[1:] }, `no two-dimensional tensor "token_embd.weight"`},
		{"heads don't divide", func(b *ggufBuilder) { b.tensors[1].shape = []uint64{8, 6} }, "6 rows are not 2 heads of even size"},
		{"split model", func(b *ggufBuilder) { b.uint("split.count", 3) }, "split over 3 files"},
		{"experts", func(b *ggufBuilder) { b.uint("llama.expert_count", 8) }, "has 8 experts"},
		{"partial rotation", func(b *ggufBuilder) { b.uint("llama.rope.dimension_count", 2) }, "rope.dimension_count is 2, but a head has 4"},
		{"YaRN's attention", func(b *ggufBuilder) {
			b.text("llama.rope.scaling.type", "yarn")
			b.float("llama.rope.scaling.yarn_attn_factor", 2)
		}, "yarn_attn_factor 2 is not supported"},
		{"unknown scaling", func(b *ggufBuilder) { b.text("llama.rope.scaling.type", "spiral") }, `"spiral" is not supported`},
		{"wrong divisors", func(b *ggufBuilder) { b.tensor(ropeFactors, ramp(3), 3) }, "not [2] of F32"},
		{"half a longrope", func(b *ggufBuilder) {
			b.uint("llama.rope.scaling.original_context_length", 16)
			b.tensor(longFactors, []float32{1, 2}, 2)
		}, "no tensor \"rope_factors_short.weight\""},
		{"longrope without length", func(b *ggufBuilder) { b.tensor(longFactors, []float32{1, 2}, 2) }, "lacks an integer llama.rope.scaling.original_context_length"},
		{"divisor 0", func(b *ggufBuilder) { b.tensor(ropeFactors, ramp(2), 2) }, "value 0 is 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newLlama()
			test.edit(b)
			refused(t, writeFile(t, t.TempDir(), "m.gguf", b.bytes()), "m.gguf", test.want)
		})
	}
}

// refused checks that opening fails with a message that holds each of the parts.
func refused(t *testing.T, path string, parts ...string) {
	t.Helper()
	c, err := Open(path)
	if err == nil {
		t.Fatalf("opened, want an error with %q", parts)
	}
	if c != nil {
		t.Error("a checkpoint came with the error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

func TestA42_GGUFCounts(t *testing.T) {
	for _, offset := range []int{8, 16} {
		data := newLlama().bytes()
		le.PutUint64(data[offset:], math.MaxUint64)
		refused(t, writeFile(t, t.TempDir(), "m.gguf", data), "18446744073709551615", "cut short or damaged")
	}
}

// TestA42_GGUFCut opens every prefix of a file; none may be accepted, and none may panic.
func TestA42_GGUFCut(t *testing.T) {
	whole := newLlama().bytes()
	for size := range whole {
		if _, _, err := parseGGUF(whole[:size:size]); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted", size, len(whole))
		}
	}
	refused(t, writeFile(t, t.TempDir(), "m.gguf", whole[:len(whole)-1]), `"blk.0.attn_q.weight": needs 256 bytes`,
		"the file ends at offset 351", "cut short")
}

func TestMetadata(t *testing.T) {
	b := newLlama()
	b.pair("i8", kindInt8, []byte{0xff})
	b.pair("i16", kindInt16, []byte{0xfe, 0xff})
	b.pair("i64", kindInt64, le.AppendUint64(nil, math.MaxUint64))
	b.pair("u64", kindUint64, le.AppendUint64(nil, math.MaxUint64))
	b.pair("f64", kindFloat64, le.AppendUint64(nil, math.Float64bits(0.1)))
	b.pair("yes", kindBool, []byte{1})
	b.text("empty", "")
	b.array("strings", kindString, 3, ggufString(ggufString(ggufString(nil, "a"), ""), "Ġé"))
	b.array("ints", kindInt32, 2, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	b.array("floats", kindFloat32, 1, le.AppendUint32(nil, math.Float32bits(-2)))
	m, _, err := parseGGUF(b.bytes())
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, want, got any, ok bool) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s: present %v (-want +got):\n%s", what, ok, diff)
		}
	}
	for key, want := range map[string]int{"i8": -1, "i16": -2, "i64": -1, "llama.block_count": 1} {
		got, ok := m.Int(key)
		check(key, want, got, ok)
	}
	unsigned, ok := m.Uint("u64")
	check("u64", uint64(math.MaxUint64), unsigned, ok)
	float, ok := m.Float("f64")
	check("f64", 0.1, float, ok)
	yes, ok := m.Bool("yes")
	check("yes", true, yes, ok)
	empty, ok := m.String("empty")
	check("empty", "", empty, ok)
	texts, ok := m.Strings("strings")
	check("strings", []string{"a", "", "Ġé"}, texts, ok)
	ints, ok := m.Ints("ints")
	check("ints", []int{1, -1}, ints, ok)
	floats, ok := m.Floats("floats")
	check("floats", []float64{-2}, floats, ok)
	if _, ok := m.Int("u64"); ok {
		t.Error("Int returned 2^64-1")
	}
	if _, ok := m.Uint("i8"); ok {
		t.Error("Uint returned -1")
	}
	if _, ok := m.String("ints"); ok {
		t.Error("String returned an array")
	}
	if keys := m.Keys(); !slices.IsSorted(keys) || len(keys) != int(b.numPairs) {
		t.Errorf("keys %v are not %d sorted ones", keys, b.numPairs)
	}
}

func TestRopeScaling(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*ggufBuilder)
		want string
	}{
		{"none", func(*ggufBuilder) {}, `null`},
		{"linear", func(b *ggufBuilder) {
			b.text("llama.rope.scaling.type", "linear")
			b.float("llama.rope.scaling.factor", 4)
		}, `{"factor":4,"rope_type":"linear"}`},
		{"yarn", func(b *ggufBuilder) {
			b.text("llama.rope.scaling.type", "yarn")
			b.float("llama.rope.scaling.factor", 2)
			b.uint("llama.rope.scaling.original_context_length", 16)
		}, `{"factor":2,"original_max_position_embeddings":16,"rope_type":"yarn"}`},
		{"yarn with betas", func(b *ggufBuilder) {
			b.text("llama.rope.scaling.type", "yarn")
			b.float("llama.rope.scaling.factor", 2)
			b.float("llama.rope.scaling.yarn_beta_fast", 16)
			b.float("llama.rope.scaling.yarn_beta_slow", 2)
		}, `{"beta_fast":16,"beta_slow":2,"factor":2,"original_max_position_embeddings":32,"rope_type":"yarn"}`},
		{"longrope", func(b *ggufBuilder) {
			b.uint("llama.rope.scaling.original_context_length", 16)
			b.float("llama.rope.scaling.attn_factor", 1.5)
			b.tensor(longFactors, []float32{2, 3}, 2)
			b.tensor(shortFactors, []float32{1, 1.5}, 2)
		}, `{"attention_factor":1.5,"long_factor":[2,3],"original_max_position_embeddings":16,"rope_type":"longrope","short_factor":[1,1.5]}`},
		{"llama3", func(b *ggufBuilder) {
			// For theta 2e8 and heads of 4 values the wavelengths are 2*pi and 88858: the ends of Llama 3's range.
			b.float("llama.rope.freq_base", 2e8)
			b.tensor(ropeFactors, []float32{1, 32}, 2)
		}, `{"factor":32,"high_freq_factor":4,"low_freq_factor":1,"original_max_position_embeddings":8192,"rope_type":"llama3"}`},
		{"other divisors", func(b *ggufBuilder) { b.tensor(ropeFactors, []float32{1.5, 3}, 2) },
			`{"attention_factor":1,"long_factor":[1.5,3],"original_max_position_embeddings":32,"rope_type":"longrope","short_factor":[1.5,3]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newLlama()
			test.edit(b)
			var config struct {
				RopeScaling json.RawMessage `json:"rope_scaling"`
			}
			decode(t, openTest(t, writeFile(t, t.TempDir(), "m.gguf", b.bytes())).Config, &config)
			var want, got any
			decode(t, []byte(test.want), &want)
			decode(t, config.RopeScaling, &got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rope_scaling differs (-want +got):\n%s", diff)
			}
		})
	}
}

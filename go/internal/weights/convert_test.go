package weights

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// converted converts a model and returns the directory.
func converted(t *testing.T, input, quantization string) string {
	t.Helper()
	output := filepath.Join(t.TempDir(), "out")
	if err := Convert(t.Context(), Conversion{Input: input, Output: output, Quantization: quantization, Progress: io.Discard}); err != nil {
		t.Fatal(err)
	}
	return output
}

// TestConvertValues compares each value of a converted model with what blocks in ggml's order stand for, and each
// tensor that is not quantized with the original.
func TestConvertValues(t *testing.T) {
	for _, name := range []string{"llama-tied", "llama-tied/sharded", "phi3", "gemma3-tied", "qwen2-tied", "mistral3", tinyMoE, "qwen3moe-some-layers"} {
		for quantization, bits := range quantizationBits {
			t.Run(name+"/"+quantization, func(t *testing.T) {
				dir := filepath.Join(tiny, name)
				want, got := openTest(t, dir), openTest(t, converted(t, dir, quantization))
				if diff := cmp.Diff(want.Names(), got.Names()); diff != "" {
					t.Fatalf("names differ (-want +got):\n%s", diff)
				}
				for _, name := range want.Names() {
					compareConverted(t, tensorOf(t, want, name), tensorOf(t, got, name), bits)
				}
			})
		}
	}
}

func compareConverted(t *testing.T, want, got Tensor, bits int) {
	t.Helper()
	if !slices.Equal(want.Shape(), got.Shape()) {
		t.Fatalf("%s has shape %v, want %v", want.Name(), got.Shape(), want.Shape())
	}
	bits = bitsFor(want, bits)
	if bits == 0 && (want.Type() != got.Type() || !bytes.Equal(want.data, got.data)) {
		t.Fatalf("%s is not what it was", want.Name())
	}
	if bits == 0 {
		return
	}
	if kind := map[int]Type{8: Q8_0, 4: Q4_0}[bits]; got.Type() != kind {
		t.Fatalf("%s has type %v, want %v", got.Name(), got.Type(), kind)
	}
	row, x, y := make([]float32, want.Cols()), make([]float32, want.Cols()), make([]float32, want.Cols())
	for r := range want.Rows() {
		want.Row(row, r)
		block := Tensor{kind: got.kind, shape: []int{want.Cols()}, data: blocks(split(t, row, bits))}
		block.Row(x, 0)
		got.Row(y, r)
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
				t.Fatalf("%s[%d,%d] is %v, want %v", want.Name(), r, i, y[i], x[i])
			}
		}
	}
}

// TestConvertChooses lists what is quantized.
func TestConvertChooses(t *testing.T) {
	for _, test := range []struct {
		name  string
		bits8 []string
		bits4 []string // in layer 0
		kept  []string
	}{
		{"phi3", []string{"model.embed_tokens", "lm_head"}, []string{"mlp.down_proj", "mlp.gate_up_proj", "self_attn.o_proj", "self_attn.qkv_proj"}, []string{"input_layernorm", "post_attention_layernorm"}},
		{"qwen3moe-some-layers", []string{"model.embed_tokens"}, []string{"self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj", "self_attn.v_proj"},
			[]string{"input_layernorm", "mlp.down_proj", "self_attn.k_norm"}}, // rows of down_proj have 56 values
	} {
		c := openTest(t, converted(t, filepath.Join(tiny, test.name), Int4))
		for _, name := range test.bits8 {
			if kind := tensorOf(t, c, name+".weight").Type(); kind != Q8_0 {
				t.Errorf("%s: %s is %v, want Q8_0", test.name, name, kind)
			}
		}
		for kind, modules := range map[Type][]string{Q4_0: test.bits4, BF16: test.kept} {
			for _, module := range modules {
				if got := tensorOf(t, c, "model.layers.0."+module+".weight").Type(); got != kind {
					t.Errorf("%s: %s is %v, want %v", test.name, module, got, kind)
				}
			}
		}
	}
}

// floats is a safetensors file of float32 tensors that have rows of 32 values, value by value the tensor's number.
func floats(names ...string) []byte {
	header := make(map[string]entry)
	var data []byte
	for n, name := range names {
		start := uint64(len(data))
		for range 2 * groupSize {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(n+1)))
		}
		header[name] = entry{"F32", []uint64{2, groupSize}, []uint64{start, uint64(len(data))}}
	}
	text, _ := json.Marshal(header)
	return append(safetensorsFile(string(text), 0), data...)
}

func TestConvertExperts(t *testing.T) {
	const layer = "model.layers.3.mlp."
	names := []string{layer + "experts.0.down_proj.weight", layer + "experts.11.gate_proj.weight", layer + "experts.11.up_proj.weight", layer + "gate.weight"}
	c := openTest(t, converted(t, writeFiles(t, map[string][]byte{singleFile: floats(names...)}), Int4))
	for n, kind := range []Type{Q4_0, Q4_0, Q4_0, F32} {
		row := make([]float32, groupSize)
		tensor := tensorOf(t, c, names[n])
		if tensor.Row(row, 1); tensor.Type() != kind || row[31] != float32(n+1) {
			t.Errorf("%s is %v with %v, want %v with %d", names[n], tensor.Type(), row[31], kind, n+1)
		}
	}
}

// TestConvertFiles compares what lies beside the weights.
func TestConvertFiles(t *testing.T) {
	files := map[string][]byte{
		configFile: []byte(`{"rope_theta": 1e-05, "big": 12345678901234567890, "nested": {"a": [1, null]}}`), generationFile: []byte("{}"),
		"tokenizer.json": []byte("T"), "chat_template.jinja": []byte("{{ x }}"), "LICENSE": []byte("L"), "LICENSE.md": []byte("M"),
		singleFile: floats("q_proj.weight"), "pytorch_model.bin": []byte("B"), "README.md": []byte("R"),
	}
	dir := writeFiles(t, files)
	if err := os.Mkdir(filepath.Join(dir, "additional_chat_templates"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "additional_chat_templates/tool.jinja", []byte("tool"))
	output := converted(t, dir, Int8)
	for name, want := range map[string]string{
		generationFile: "{}", "tokenizer.json": "T", "chat_template.jinja": "{{ x }}", "LICENSE": "L", "LICENSE.md": "M",
		"additional_chat_templates/tool.jinja": "tool", "pytorch_model.bin": "", "README.md": "", indexFile: "",
	} {
		if got, err := os.ReadFile(filepath.Join(output, name)); string(got) != want || (want != "") != (err == nil) {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
	config, err := os.ReadFile(filepath.Join(output, configFile))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"big":12345678901234567890,"nested":{"a":[1,null]},"quantization_config":{"quant_method":"minisgl","bits":8,"group_size":32},"rope_theta":1e-05}`
	var compact bytes.Buffer
	if err := json.Compact(&compact, config); err != nil || compact.String() != want {
		t.Errorf("configuration %s (%v), want %s", compact.String(), err, want)
	}
	if info, err := os.Stat(output); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("output %v (%v), want a folder that others can read", info.Mode(), err)
	}
}

// TestConvertLayout: every tensor is aligned, which readers that map the file count on.
func TestConvertLayout(t *testing.T) {
	m, err := openMapping(filepath.Join(converted(t, filepath.Join(tiny, "phi3"), Int4), singleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tensors, err := parseSafetensors(m.data)
	if err != nil {
		t.Fatal(err)
	}
	base := uint64(len(m.data))
	for _, s := range tensors {
		base -= s.size()
	}
	for _, s := range tensors {
		if (base+s.start)%uint64(formats[s.kind].blockBytes) != 0 {
			t.Errorf("%s of type %v begins at byte %d", s.name, s.kind, base+s.start)
		}
	}
}

func TestConvertRefused(t *testing.T) {
	bad := floats("a.norm.weight", "b.q_proj.weight")
	binary.LittleEndian.PutUint32(bad[len(bad)-4:], math.Float32bits(float32(math.NaN())))
	model := func(name string, file []byte) string { return writeFiles(t, map[string][]byte{name: file}) }
	good := model(singleFile, floats("q_proj.weight"))
	for _, test := range []struct {
		name, input, quantization string
		want                      []string
	}{
		{"quantization", good, "int3", []string{`no quantization "int3"`, "int8 and int4"}},
		{"no input", filepath.Join(good, "absent"), Int8, []string{"absent", "no such file"}},
		{"GGUF", filepath.Join(tiny, "llama-tied/f16.gguf"), Int8, []string{"a GGUF file has its tokenizer in another form"}},
		{"twice", converted(t, good, Int8), Int4, []string{"quantized already, to 8 bits"}},
		{"another's", writeFiles(t, map[string][]byte{configFile: []byte(`{"quantization_config": {"quant_method": "awq"}}`)}), Int8, []string{`quant_method "awq"`}},
		{"no projection", model(singleFile, floats("a.weight", "gate.weight")), Int8, []string{"none of its 2 tensors is a projection"}},
		{"rows of no groups", model(singleFile, oneTensor("q_proj.weight", 1)), Int8, []string{"none of its 1 tensors"}},
		{"not a number", model(singleFile, bad), Int4, []string{`tensor "b.q_proj.weight": row 1: value 31 is NaN`}},
		{"cut", model(singleFile, bad[:len(bad)-2]), Int8, []string{singleFile, "2 too few"}},
		{"names meet", model(singleFile, floats("q_proj.weight", "q_proj.weight_scale")), Int8, []string{"two tensors have one name"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			parent := t.TempDir()
			output := filepath.Join(parent, "out")
			err := Convert(t.Context(), Conversion{Input: test.input, Output: output, Quantization: test.quantization, Progress: io.Discard})
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range append(test.want, test.input, output) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
			empty(t, parent)
		})
	}
}

// empty checks that nothing is left in a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v)", left, err)
	}
}

func TestConvertNeverOverwrites(t *testing.T) {
	input := writeFiles(t, map[string][]byte{singleFile: floats("q_proj.weight")})
	parent := t.TempDir()
	file, link := writeFile(t, parent, "file", []byte("mine")), filepath.Join(parent, "link")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{file, link, parent, input} {
		err := Convert(t.Context(), Conversion{Input: input, Output: output, Quantization: Int8, Progress: io.Discard})
		if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), output) {
			t.Errorf("%s: error %v", output, err)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "mine" {
		t.Errorf("the file holds %q (%v)", text, err)
	}
	if err := Convert(t.Context(), Conversion{Input: input, Output: filepath.Join(parent, "no", "out"), Quantization: Int8}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no parent: error %v", err)
	}
}

func TestConvertInterrupted(t *testing.T) {
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Convert(ctx, Conversion{Input: filepath.Join(tiny, "phi3"), Output: filepath.Join(parent, "out"), Quantization: Int8, Progress: io.Discard})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	empty(t, parent)
}

func TestConvertProgress(t *testing.T) {
	var out bytes.Buffer
	p := &conversionProgress{to: &out, total: 4_000_000}
	p.add(1_000_000) // the zero time is long ago
	p.add(1_000_000)
	if out.String() != "converting: 25% of 4.0 MB\n" {
		t.Errorf("progress %q", out.String())
	}
}

package weights

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tiny holds the models that scripts/golden/tiny_models.py wrote, each in several forms of the same values.
const tiny = "../model/testdata/tiny"

func openTest(t *testing.T, path string) *Checkpoint {
	t.Helper()
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestFormsOfOneModelAgree(t *testing.T) {
	for _, test := range []struct {
		name  string
		forms []string
	}{
		{"llama-tied", []string{"sharded", "f16.gguf", "f32.gguf"}},
		{"llama-untied-mha", []string{"f16.gguf"}},
		{"llama-headdim32", []string{"f16.gguf"}},
	} {
		for _, form := range test.forms {
			t.Run(test.name+"/"+form, func(t *testing.T) {
				dir := filepath.Join(tiny, test.name)
				compareTensors(t, openTest(t, dir), openTest(t, filepath.Join(dir, form)))
			})
		}
	}
}

func compareTensors(t *testing.T, want, got *Checkpoint) {
	t.Helper()
	if diff := cmp.Diff(want.Names(), got.Names()); diff != "" {
		t.Fatalf("names differ (-want +got):\n%s", diff)
	}
	for _, name := range want.Names() {
		a, _ := want.Tensor(name)
		b, _ := got.Tensor(name)
		if !slices.Equal(a.Shape(), b.Shape()) || b.Name() != name {
			t.Fatalf("%s has shape %v and name %q, want shape %v", name, b.Shape(), b.Name(), a.Shape())
		}
		x, y := make([]float32, a.Cols()), make([]float32, a.Cols())
		for row := range a.Rows() {
			a.Row(x, row)
			b.Row(y, row)
			for col := range x {
				if math.Float32bits(x[col]) != math.Float32bits(y[col]) {
					t.Fatalf("%s[%d,%d] is %v, want %v", name, row, col, y[col], x[col])
				}
			}
		}
	}
}

// TestConfigFromMetadata compares the configuration made from a GGUF with the model's own.
func TestConfigFromMetadata(t *testing.T) {
	for _, name := range []string{"llama-tied", "llama-untied-mha", "llama-headdim32"} {
		t.Run(name, func(t *testing.T) {
			var want, got map[string]any
			decode(t, openTest(t, filepath.Join(tiny, name)).Config, &want)
			decode(t, openTest(t, filepath.Join(tiny, name, "f16.gguf")).Config, &got)
			rope, _ := want["rope_parameters"].(map[string]any)
			want["rope_theta"], want["rope_scaling"], want["torch_dtype"] = rope["rope_theta"], nil, "float16"
			for key, value := range got {
				if diff := cmp.Diff(want[key], value); diff != "" {
					t.Errorf("%s differs (-want +got):\n%s", key, diff)
				}
			}
			if len(got) != 20 {
				t.Errorf("config has %d keys, want 20", len(got))
			}
		})
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

func TestCheckpointFields(t *testing.T) {
	dir := filepath.Join(tiny, "llama-tied")
	hf, gg := openTest(t, dir), openTest(t, filepath.Join(dir, "f16.gguf"))
	if hf.TokenizerDir != dir || hf.Generation == nil || hf.Metadata != nil {
		t.Errorf("directory: tokenizer in %q, %d bytes of generation config, metadata %v", hf.TokenizerDir, len(hf.Generation), hf.Metadata)
	}
	if gg.TokenizerDir != "" || gg.Generation != nil || gg.Metadata == nil {
		t.Errorf("GGUF: tokenizer in %q, %d bytes of generation config, metadata %v", gg.TokenizerDir, len(gg.Generation), gg.Metadata)
	}
	if _, ok := gg.Tensor("lm_head.weight"); ok {
		t.Error("a tied model has an lm_head")
	}
	tensor, ok := gg.Tensor("model.layers.1.mlp.down_proj.weight")
	if !ok || tensor.Type() != F16 || tensor.Bytes() != 2*64*160 {
		t.Errorf("down_proj: present %v, type %v, %d bytes", ok, tensor.Type(), tensor.Bytes())
	}
}

func TestMetadataOutlivesCheckpoint(t *testing.T) {
	c, err := Open(filepath.Join(tiny, "llama-tied/f16.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tokens, ok := c.Metadata.Strings("tokenizer.ggml.tokens")
	if !ok || len(tokens) != 320 || tokens['a'] != "a" || tokens[256] != "<|endoftext|>" {
		t.Fatalf("%d tokens, present %v", len(tokens), ok)
	}
	if names := c.Names(); len(names) != 0 {
		t.Fatalf("closed checkpoint has tensors %v", names)
	}
}

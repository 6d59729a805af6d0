package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestA38_DamagedModels: a model whose files are cut or missing ends the commands
// with an exit code and one error that names the file at fault
// (lyogavin/airllm#137, #93).
func TestA38_DamagedModels(t *testing.T) {
	const tiny = "../internal/model/testdata/tiny/llama-tied"
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(tiny, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	weights, gguf := read("model.safetensors"), read("f16.gguf")
	index, err := json.Marshal(map[string]any{"weight_map": map[string]string{"model.norm.weight": "model-00002-of-00002.safetensors"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		files map[string][]byte // nil: the file is missing
		model string            // inside the directory
		want  []string
	}{
		"one byte short":  {map[string][]byte{"model.safetensors": weights[:len(weights)-1]}, "", []string{"model.safetensors", "tensor", "1 too few"}},
		"half":            {map[string][]byte{"model.safetensors": weights[:len(weights)/2]}, "", []string{"model.safetensors", "tensor", "too few"}},
		"LFS pointer":     {map[string][]byte{"model.safetensors": []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")}, "", []string{"model.safetensors", "Git LFS pointer"}},
		"no weights":      {map[string][]byte{"model.safetensors": nil}, "", []string{"no model.safetensors"}},
		"only an adapter": {map[string][]byte{"model.safetensors": nil, "adapter_model.safetensors": weights}, "", []string{"no model.safetensors"}},
		"absent shard":    {map[string][]byte{"model.safetensors.index.json": index}, "", []string{"model.safetensors.index.json", "model.norm.weight", "model-00002-of-00002.safetensors"}},
		"no tokenizer":    {map[string][]byte{"tokenizer.json": nil}, "", []string{"tokenizer.json"}},
		"no config":       {map[string][]byte{"config.json": nil}, "", []string{"config.json"}},
		"GGUF cut":        {map[string][]byte{"m.gguf": gguf[:len(gguf)-1]}, "m.gguf", []string{"m.gguf", "tensor", "cut short"}},
	} {
		dir := t.TempDir()
		for _, file := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} {
			if _, other := test.files[file]; !other {
				test.files[file] = read(file)
			}
		}
		for file, data := range test.files {
			if data == nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"serve", "--port", "0"}, {"generate", "x"}} {
			var out, errs bytes.Buffer
			args = append(args, "--model", filepath.Join(dir, test.model), "--num-pages", "64")
			code := Run(t.Context(), args, strings.NewReader(""), &out, &errs)
			if code != exitFailure {
				t.Errorf("%s: %v: exit code %d", name, args, code)
			}
			for _, part := range test.want {
				if !strings.Contains(errs.String(), part) {
					t.Errorf("%s: %v: stderr lacks %q: %s", name, args, part, errs.String())
				}
			}
			if strings.Contains(errs.String(), "panic") || strings.Contains(errs.String(), "goroutine") {
				t.Errorf("%s: %v: %s", name, args, errs.String())
			}
		}
	}
}

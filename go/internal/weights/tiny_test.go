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
		{"llama-tied", []string{"sharded", "f16.gguf"}},
		{"llama-rope", []string{"f32.gguf"}},
		{"llama-untied-mha", []string{"f16.gguf"}},
		{"llama-headdim32", []string{"f16.gguf"}},
		{"qwen2-tied", []string{"f16.gguf"}},
		{"qwen3-tied", []string{"f16.gguf"}},
		{"phi3", []string{"f16.gguf"}},
		{"phi3-partial", []string{"f16.gguf"}},
		{"ministral3", []string{"f16.gguf"}},
		{"llama-llama3", []string{"f16.gguf"}},
		{"gemma3-tied", []string{"f16.gguf"}},
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

// TestOwnSettings compares what the architectures' own metadata becomes with the model's own configuration.
func TestOwnSettings(t *testing.T) {
	for name, keys := range map[string][]string{
		"qwen2-tied":   {"architectures", "model_type", "hidden_act", "tie_word_embeddings"},
		"qwen3-tied":   {"architectures", "model_type", "hidden_act", "head_dim", "attention_bias", "tie_word_embeddings"},
		"phi3":         {"architectures", "model_type", "hidden_act", "sliding_window", "intermediate_size"},
		"phi3-partial": {"partial_rotary_factor", "original_max_position_embeddings"},
		"ministral3":   {"architectures", "model_type", "head_dim", "max_position_embeddings"},
		"gemma3-tied":  {"architectures", "model_type", "hidden_activation", "sliding_window", "layer_types", "query_pre_attn_scalar", "head_dim"},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got map[string]any
			decode(t, openTest(t, filepath.Join(tiny, name)).Config, &want)
			decode(t, openTest(t, filepath.Join(tiny, name, "f16.gguf")).Config, &got)
			for _, key := range keys {
				if diff := cmp.Diff(want[key], got[key]); diff != "" || got[key] == nil {
					t.Errorf("%s differs (-want +got):\n%s", key, diff)
				}
			}
		})
	}
}

// TestMistral3Metadata: llama.cpp's mistral3 is Mistral Small 3.1, and Ministral 3 with its scaled queries.
func TestMistral3Metadata(t *testing.T) {
	for name, want := range map[string]string{
		"mistral3": `{"rope_type":"default"}`,
		"ministral3": `{"rope_type":"yarn","factor":2,"original_max_position_embeddings":128,"mscale":1,"mscale_all_dim":1,` +
			`"llama_4_scaling_beta":0.1}`,
	} {
		var config struct {
			Architectures []string
			Scaling       any `json:"rope_scaling"`
		}
		decode(t, openTest(t, filepath.Join(tiny, name, "f16.gguf")).Config, &config)
		var scaling any
		decode(t, []byte(want), &scaling)
		if diff := cmp.Diff(scaling, config.Scaling); diff != "" || config.Architectures[0] != "Ministral3ForCausalLM" {
			t.Errorf("%s: architecture %v; rope_scaling (-want +got):\n%s", name, config.Architectures, diff)
		}
	}
}

func TestGemma3Settings(t *testing.T) {
	gemma := func(layers uint32) *ggufBuilder {
		b := &ggufBuilder{version: 3, alignment: defaultAlignment}
		b.text("general.architecture", "gemma3")
		b.uint("gemma3.block_count", layers)
		for key, n := range map[string]uint32{
			"embedding_length": 8, "feed_forward_length": 16, "context_length": 32, "attention.head_count": 2,
			"attention.key_length": 8, "attention.value_length": 8, "attention.sliding_window": 4,
		} {
			b.uint("gemma3."+key, n)
		}
		b.float("gemma3.attention.layer_norm_rms_epsilon", 1e-6)
		b.tensor("token_embd.weight", ramp(24), 8, 3)
		b.tensor("output_norm.weight", []float32{1, 1.5, 0, 1, 1, 1, 1, 1}, 8)
		return b
	}
	sixth, large, every := gemma(7), gemma(62), gemma(3)
	every.uint("gemma3.attention.sliding_window_pattern", 2)
	for name, test := range map[string]struct {
		b      *ggufBuilder
		full   []int
		scalar float64
	}{
		"every sixth": {sixth, []int{5}, 8}, "27B": {large, []int{5, 11, 17, 23, 29, 35, 41, 47, 53, 59}, 4}, "every second": {every, []int{1}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			c := openTest(t, writeFile(t, t.TempDir(), "m.gguf", test.b.bytes()))
			var got struct {
				LayerTypes []string `json:"layer_types"`
				Scalar     float64  `json:"query_pre_attn_scalar"`
				Theta      float64  `json:"rope_local_base_freq"`
			}
			decode(t, c.Config, &got)
			var full []int
			for i, kind := range got.LayerTypes {
				if kind == "full_attention" {
					full = append(full, i)
				}
			}
			if !slices.Equal(full, test.full) || got.Scalar != test.scalar || got.Theta != 10000 {
				t.Errorf("full layers %v, scalar %v, theta %v", full, got.Scalar, got.Theta)
			}
			norm, row := tensorOf(t, c, "model.norm.weight"), make([]float32, 8)
			if norm.Row(row, 0); !slices.Equal(row, []float32{0, 0.5, -1, 0, 0, 0, 0, 0}) {
				t.Errorf("norm %v: the one that the converter adds is still there", row)
			}
		})
	}
	capped, uneven := gemma(2), gemma(2)
	capped.float("gemma3.final_logit_softcapping", 30)
	refused(t, writeFile(t, t.TempDir(), "m.gguf", capped.bytes()), "final_logit_softcapping 30 is not supported")
	uneven.array("gemma3.attention.sliding_window_pattern", kindBool, 1, []byte{1})
	refused(t, writeFile(t, t.TempDir(), "m.gguf", uneven.bytes()), "sliding_window_pattern has 1 values for 2 layers")
}

func tensorOf(t *testing.T, c *Checkpoint, name string) Tensor {
	t.Helper()
	tensor, ok := c.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	return tensor
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

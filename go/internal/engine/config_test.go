package engine

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// changed opens a tiny model, some fields of its configuration being others; nil
// takes a field away.
func changed(t *testing.T, name string, fields map[string]any) (*weights.Checkpoint, []byte) {
	t.Helper()
	ck, err := weights.Open(filepath.Join(tiny, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	config := map[string]any{}
	if err := json.Unmarshal(ck.Config, &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config, fields)
	maps.DeleteFunc(config, func(_ string, value any) bool { return value == nil })
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return ck, text
}

// TestA40_LeftOut: fields that a configuration leaves out mean what transformers
// takes for them.
func TestA40_LeftOut(t *testing.T) {
	for name, fields := range map[string]map[string]any{
		"llama-untied-mha": {"num_key_value_heads": nil, "head_dim": nil, "attention_bias": nil, "mlp_bias": nil},
		"qwen2-tied":       {"use_sliding_window": nil, "layer_types": nil},
		"qwen2-window":     {"layer_types": nil},
		"mistral-window":   {"layer_types": nil},
	} {
		ck, config := changed(t, name, fields)
		want := readExpected(t, filepath.Join(tiny, name, "expected.json"))
		compare(t, newSoloOf(t, config, ck, Config{Quantization: Dequantized}, devices(t)["cpu"]), want)
	}
}

// TestA40_WrongShape: a weight that doesn't fit the configuration is named, with
// both shapes.
func TestA40_WrongShape(t *testing.T) {
	for _, test := range []struct {
		name, field string
		value       int
		want        string
	}{
		{"llama-headdim32", "head_dim", 16, "tensor model.layers.0.self_attn.q_proj.weight has shape [128 64], but the configuration asks for 64 × 64"},
		{"llama-headdim32", "intermediate_size", 95, "tensor model.layers.0.mlp.gate_proj.weight has shape [96 64], but the configuration asks for 95 × 64"},
		{"llama-tied", "vocab_size", 321, "tensor model.embed_tokens.weight has shape [320 64], but the configuration asks for 321 × 64"},
		{"llama-tied", "num_hidden_layers", 3, "no tensor model.layers.2."},
	} {
		ck, config := changed(t, test.name, map[string]any{test.field: test.value})
		mc, err := model.ParseConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(Config{DType: ops.F32, PageSize: 4, NumPages: 4, MaxRunning: 1, MaxExtendTokens: 4, MaxSeqLen: 16, Vocab: mc.VocabSize}, mc, ck, devices(t)["cpu"])
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %s %d: error %v, want one with %q", test.name, test.field, test.value, err, test.want)
		}
	}
}

// TestScaledQueriesEnd: no engine runs sequences so long that a result would be
// wrong.
func TestScaledQueriesEnd(t *testing.T) {
	ck, config := changed(t, "ministral3", nil)
	mc, err := model.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{DType: ops.F32, PageSize: 4, NumPages: 64, MaxRunning: 1, MaxExtendTokens: 4, MaxSeqLen: 129, Vocab: mc.VocabSize}, mc, ck, devices(t)["cpu"])
	if err == nil || !strings.Contains(err.Error(), "llama_4_scaling_beta") || !strings.Contains(err.Error(), "128") {
		t.Errorf("129 tokens: error %v", err)
	}
}

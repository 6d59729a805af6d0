package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/ops"
)

const sizes = `"vocab_size":32,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":4`

// file is a config.json of an architecture with more fields.
func file(architecture, extra string) []byte {
	if extra != "" {
		extra = "," + extra
	}
	return []byte(`{"architectures":["` + architecture + `"],` + sizes + extra + `}`)
}

func parse(t *testing.T, architecture, extra string) Config {
	t.Helper()
	c, err := ParseConfig(file(architecture, extra))
	if err != nil {
		t.Fatalf("%s with %s: %v", architecture, extra, err)
	}
	return c
}

// TestParseConfigDefaults: what a configuration leaves out is as in transformers'
// configuration classes.
func TestParseConfigDefaults(t *testing.T) {
	type values struct {
		KVHeads, HeadDim, MaxPositions int
		Tied                           bool
		Theta                          []float64
		Windows                        []int
	}
	for _, tt := range []struct {
		architecture, extra string
		want                values
	}{
		{"LlamaForCausalLM", "", values{4, 4, 2048, false, []float64{1e4}, nil}},
		{"Qwen2ForCausalLM", `"num_key_value_heads":2`, values{2, 4, 32768, false, []float64{1e4}, []int{0, 0}}},
		{"Qwen2ForCausalLM", `"num_key_value_heads":null`, values{4, 4, 32768, false, []float64{1e4}, []int{0, 0}}},
		{"Qwen3ForCausalLM", `"num_key_value_heads":2`, values{2, 128, 32768, false, []float64{1e4}, []int{0, 0}}},
		{"MistralForCausalLM", `"num_attention_heads":8`, values{8, 2, 131072, false, []float64{1e4}, []int{4096, 4096}}},
		{"MistralForCausalLM", `"num_key_value_heads":4,"head_dim":null`, values{4, 4, 131072, false, []float64{1e4}, []int{4096, 4096}}},
		{"Phi3ForCausalLM", "", values{4, 4, 4096, false, []float64{1e4}, []int{0, 0}}},
		{"Gemma3ForCausalLM", "", values{4, 256, 131072, true, []float64{1e6, 1e4}, []int{4096, 4096}}},
	} {
		c := parse(t, tt.architecture, tt.extra)
		got := values{KVHeads: c.KVHeads, HeadDim: c.HeadDim, MaxPositions: c.MaxPositions, Tied: c.TieEmbeddings, Windows: c.Windows}
		for _, r := range c.Ropes {
			got.Theta = append(got.Theta, r.Theta)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s with %s (-want +got):\n%s", tt.architecture, tt.extra, diff)
		}
	}
}

func TestParseConfigValues(t *testing.T) {
	for _, tt := range []struct {
		extra string
		theta float64
		eos   int
	}{
		{`"rope_theta":5e5,"eos_token_id":7`, 5e5, 1},
		{`"rope_parameters":{"rope_type":"default","rope_theta":123},"eos_token_id":[7,8]`, 123, 2},
		{`"rope_scaling":null,"rope_theta":9,"eos_token_id":null`, 9, 0},
		{`"rope_scaling":{},"rope_parameters":{"rope_theta":7}`, 7, 0},
		{`"rope_scaling":{"type":"default","rope_type":"default"}`, 10000, 0},
	} {
		c := parse(t, "LlamaForCausalLM", tt.extra)
		if c.Ropes[0].Theta != tt.theta || len(c.EOS) != tt.eos {
			t.Errorf("%s: theta %v, eos %v", tt.extra, c.Ropes[0].Theta, c.EOS)
		}
	}
}

// TestWindows: a window counts where transformers lets it.
func TestWindows(t *testing.T) {
	for _, tt := range []struct {
		architecture, extra string
		want                []int
	}{
		{"Qwen2ForCausalLM", `"sliding_window":8`, []int{0, 0}},
		{"Qwen2ForCausalLM", `"sliding_window":8,"use_sliding_window":false,"max_window_layers":1`, []int{0, 0}},
		{"Qwen2ForCausalLM", `"sliding_window":8,"use_sliding_window":true,"max_window_layers":1`, []int{0, 8}},
		{"Qwen2ForCausalLM", `"sliding_window":8,"use_sliding_window":true`, []int{0, 0}},
		{"Qwen3ForCausalLM", `"sliding_window":8,"use_sliding_window":true,"layer_types":["sliding_attention","full_attention"]`, []int{8, 0}},
		{"MistralForCausalLM", `"sliding_window":8`, []int{8, 8}},
		{"MistralForCausalLM", `"sliding_window":null`, []int{0, 0}},
		{"Phi3ForCausalLM", `"sliding_window":2047`, []int{2047, 2047}},
		{"Gemma3ForCausalLM", `"sliding_window":8,"sliding_window_pattern":2`, []int{8, 0}},
		{"Gemma3ForCausalLM", `"sliding_window":8,"layer_types":["full_attention","sliding_attention"]`, []int{0, 8}},
	} {
		extra := `"num_key_value_heads":4,` + tt.extra
		if got := parse(t, tt.architecture, extra).Windows; !slices.Equal(got, tt.want) {
			t.Errorf("%s with %s: windows %v, want %v", tt.architecture, tt.extra, got, tt.want)
		}
	}
}

// TestPartialRotary: the rotary settings' own factor comes before the model's.
func TestPartialRotary(t *testing.T) {
	for extra, want := range map[string]int{
		``: 16, `"partial_rotary_factor":1.0`: 16, `"partial_rotary_factor":null`: 16, `"partial_rotary_factor":0.75`: 12,
		`"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}`:                              8,
		`"partial_rotary_factor":0.75,"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}`: 8,
	} {
		if c := parse(t, "Phi3ForCausalLM", strings.TrimSuffix(`"hidden_size":64,`+extra, ",")); c.Ropes[0].Dim != want {
			t.Errorf("%s: %d of %d elements rotate, want %d", extra, c.Ropes[0].Dim, c.HeadDim, want)
		}
	}
}

// TestMinistral3: the context ends where queries would be scaled, under both
// names of the architecture.
func TestMinistral3(t *testing.T) {
	const rope = `"rope_parameters":{"type":"yarn","rope_type":"yarn","factor":16,"original_max_position_embeddings":64,"rope_theta":1e6,` +
		`"max_position_embeddings":1024,"mscale":1,"mscale_all_dim":1,"llama_4_scaling_beta":%s}`
	for _, beta := range []string{"0.1", "0"} {
		settings := `"num_key_value_heads":4,"max_position_embeddings":1024,` + fmt.Sprintf(rope, beta)
		for _, c := range []Config{
			parse(t, "Ministral3ForCausalLM", settings),
			parse(t, "Mistral3ForConditionalGeneration", `"text_config":{"model_type":"ministral3",`+settings+`}`),
		} {
			if want := map[string]int{"0.1": 64, "0": 1024}[beta]; c.MaxPositions != want || c.Ropes[0].AttentionFactor != 1 || c.Windows[0] != 0 || c.HeadDim != 128 {
				t.Errorf("%s, beta %s: %d positions, want %d; attention factor %v, window %d, head_dim %d",
					c.Architecture, beta, c.MaxPositions, want, c.Ropes[0].AttentionFactor, c.Windows[0], c.HeadDim)
			}
			if err := c.CheckLength(64); err != nil {
				t.Error(err)
			}
			if err := c.CheckLength(65); (err != nil) != (beta != "0") || err != nil && !strings.Contains(err.Error(), "llama_4_scaling_beta") {
				t.Errorf("%s, beta %s, 65 tokens: %v", c.Architecture, beta, err)
			}
		}
	}
}

func TestGemma3Ropes(t *testing.T) {
	old := parse(t, "Gemma3ForCausalLM", `"rope_theta":5e5,"rope_local_base_freq":77,"rope_scaling":{"rope_type":"linear","factor":8}`)
	now := parse(t, "Gemma3ForCausalLM", `"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":5e5},`+
		`"sliding_attention":{"rope_type":"default","rope_theta":77}}`)
	if diff := cmp.Diff(old.Ropes, now.Ropes); diff != "" {
		t.Errorf("old and new names differ:\n%s", diff)
	}
	if r := now.Ropes; len(r) != 2 || r[0].Type != "linear" || r[0].Factor != 8 || r[0].Theta != 5e5 || r[1].Theta != 77 || r[1].Factor != 1 {
		t.Errorf("ropes %+v", r)
	}
}

func TestGemma3Settings(t *testing.T) {
	c := parse(t, "Gemma3ForCausalLM", `"query_pre_attn_scalar":64,"torch_dtype":"bfloat16"`)
	if c.Activation != ops.GELUTanh || c.scoreScale() != 0.125 {
		t.Errorf("activation %v, scale %v", c.Activation, c.scoreScale())
	}
	for _, tt := range []struct {
		x     float64
		dtype string
		want  float32
	}{
		{55.42562584220407, "bfloat16", 55.5}, {55.42562584220407, "float16", 55.4375}, {55.42562584220407, "float32", 55.425626},
		{33.94112549695428, "bfloat16", 34}, {8, "bfloat16", 8},
	} {
		if got := roundTo(tt.x, tt.dtype); got != tt.want {
			t.Errorf("%v as %s is %v, want %v", tt.x, tt.dtype, got, tt.want)
		}
	}
}

// TestParseConfigRefuses: what changes the result and is not supported is an
// error that names the field, never ignored.
func TestParseConfigRefuses(t *testing.T) {
	const llama, gemma = "LlamaForCausalLM", "Gemma3ForCausalLM"
	for _, tt := range []struct{ architecture, extra, want string }{
		{llama, `"rope_scaling":{"rope_type":"spiral","factor":4}`, `rope type "spiral"`},
		{llama, `"rope_scaling":{"rope_type":"mrope","mrope_section":[1,1]}`, "mrope_section"},
		{llama, `"rope_parameters":{"full_attention":{"rope_theta":3}}`, "full_attention"},
		{llama, `"rope_scaling":{"type":"linear"}`, "needs factor"},
		{llama, `"rope_scaling":{"type":"linear","factor":0}`, "factor"},
		{llama, `"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1}`, "high_freq_factor"},
		{llama, `"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4}`, "high_freq_factor"},
		{llama, `"rope_scaling":{"rope_type":"longrope","short_factor":[1,1],"long_factor":[1]}`, "long_factor has 1 values"},
		{llama, `"rope_scaling":{"rope_type":"longrope","short_factor":[1,-1],"long_factor":[1,1]}`, "short_factor"},
		{llama, `"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":0}`, "original_max_position_embeddings"},
		{llama, `"rope_scaling":{"rope_type":"yarn","factor":4,"beta_fast":1,"beta_slow":2}`, "beta_fast"},
		{llama, `"rope_scaling":{"rope_type":"dynamic","factor":4},"head_dim":2`, "more than 2"},
		{llama, `"rope_scaling":[1]`, "rope_scaling"},
		{llama, `"rope_theta":-1`, "rope_theta"},
		{llama, `"hidden_act":"gelu"`, "hidden_act"},
		{llama, `"quantization_config":{"bits":4}`, "quantization_config"},
		{llama, `"partial_rotary_factor":0.5`, "partial_rotary_factor 0.5 is not supported by LlamaForCausalLM"},
		{llama, `"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}`, "partial_rotary_factor"},
		{llama, `"sliding_window":8`, "sliding_window"},
		{llama, `"layer_types":["full_attention","chunked_attention"]`, "layer_types"},
		{llama, `"num_key_value_heads":3`, "num_key_value_heads"},
		{llama, `"head_dim":5`, "head_dim"},
		{llama, `"hidden_size":-1`, "hidden_size"},
		{llama, `"vocab_size":99999999999`, "vocab_size"},
		{llama, `"eos_token_id":"x"`, "eos_token_id"},
		{"Qwen2ForCausalLM", `"num_key_value_heads":4,"mlp_bias":true`, "mlp_bias"},
		{"Qwen2ForCausalLM", `"num_key_value_heads":4,"layer_types":["full_attention"]`, "layer_types has 1"},
		{"Qwen2ForCausalLM", `"num_key_value_heads":4,"layer_types":["full_attention","sliding_attention"]`, "no sliding_window"},
		{"Qwen3ForCausalLM", `"num_key_value_heads":4,"layer_types":["full_attention","linear_attention"]`, "linear_attention"},
		{"MistralForCausalLM", `"num_key_value_heads":4,"attention_bias":true`, "attention_bias"},
		{"MistralForCausalLM", `"num_key_value_heads":4,"sliding_window":0`, "sliding_window"},
		{"MistralForCausalLM", `"num_key_value_heads":4,"layer_types":["full_attention","sliding_attention"]`, "layer_types"},
		{"Mistral3ForConditionalGeneration", "", "text_config"},
		{"Mistral3ForConditionalGeneration", `"text_config":{"model_type":"mixtral"}`, "num_key_value_heads"},
		{"Mistral3ForConditionalGeneration", `"text_config":{"model_type":"mixtral","num_key_value_heads":4}`, "mixtral"},
		{"Mistral3ForConditionalGeneration", `"text_config":{"model_type":"ministral3","num_key_value_heads":4}`, "needs rope_parameters"},
		{"Ministral3ForCausalLM", `"num_key_value_heads":4`, "needs rope_parameters"},
		{"MistralForCausalLM", `"num_key_value_heads":4,"rope_parameters":{"rope_type":"default","llama_4_scaling_beta":0.1}`, "llama_4_scaling_beta 0.1 is not supported"},
		{"Qwen3ForCausalLM", `"num_key_value_heads":4,"partial_rotary_factor":0.5`, "not supported by Qwen3ForCausalLM"},
		{gemma, `"partial_rotary_factor":0.5`, "not supported by Gemma3ForCausalLM"},
		{"Phi3ForCausalLM", `"partial_rotary_factor":0.75`, "lets 3 of 4 elements of a head rotate"},
		{"Phi3ForCausalLM", `"partial_rotary_factor":0.3`, "lets 1 of 4"},
		{"Phi3ForCausalLM", `"partial_rotary_factor":0`, "lets 0 of 4"},
		{"Phi3ForCausalLM", `"partial_rotary_factor":2`, "lets 8 of 4"},
		{"Phi3ForCausalLM", `"partial_rotary_factor":-1`, "lets -4 of 4"},
		{gemma, `"final_logit_softcapping":30`, "final_logit_softcapping"},
		{gemma, `"attn_logit_softcapping":50`, "attn_logit_softcapping"},
		{gemma, `"use_bidirectional_attention":true`, "use_bidirectional_attention"},
		{gemma, `"query_pre_attn_scalar":0`, "query_pre_attn_scalar"},
		{gemma, `"sliding_window_pattern":0`, "sliding_window_pattern"},
		{gemma, `"hidden_activation":"relu"`, "hidden_activation"},
		{gemma, `"sliding_window":null`, "sliding_window"},
		{gemma, `"rope_parameters":{"rope_type":"default","rope_theta":5}`, "rope_"},
	} {
		if _, err := ParseConfig(file(tt.architecture, tt.extra)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %s: error %v, want one with %s", tt.architecture, tt.extra, err, tt.want)
		}
	}
}

func TestUnknownArchitecture(t *testing.T) {
	for _, text := range []string{`{"architectures":["MambaForCausalLM"]}`, `{"architectures":[]}`, `{}`} {
		_, err := ParseConfig([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "Gemma3ForCausalLM, LlamaForCausalLM, Ministral3ForCausalLM, Mistral3ForConditionalGeneration") {
			t.Errorf("%s: error %v must name the known architectures", text, err)
		}
	}
	_, err := New(Config{Architecture: "MambaForCausalLM"}, shapes{})
	if err == nil || !strings.Contains(err.Error(), "MambaForCausalLM") || !strings.Contains(err.Error(), "LlamaForCausalLM") {
		t.Errorf("error %v must name the architecture and the known ones", err)
	}
}

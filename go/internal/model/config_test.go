package model

import (
	"strings"
	"testing"
)

const small = `"architectures":["LlamaForCausalLM"],"vocab_size":32,"hidden_size":16,"intermediate_size":24,` +
	`"num_hidden_layers":1,"num_attention_heads":4`

func TestParseConfigDefaults(t *testing.T) {
	c, err := ParseConfig([]byte("{" + small + "}"))
	if err != nil {
		t.Fatal(err)
	}
	if c.KVHeads != 4 || c.HeadDim != 4 || c.RopeTheta != 10000 || c.MaxPositions != 2048 {
		t.Errorf("defaults: %+v", c)
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
		{`"rope_scaling":{"type":"default","rope_type":"default"}`, 10000, 0},
	} {
		c, err := ParseConfig([]byte("{" + small + "," + tt.extra + "}"))
		if err != nil {
			t.Errorf("%s: %v", tt.extra, err)
		} else if c.RopeTheta != tt.theta || len(c.EOS) != tt.eos {
			t.Errorf("%s: theta %v, eos %v", tt.extra, c.RopeTheta, c.EOS)
		}
	}
}

// TestParseConfigRefuses: what changes the result and is not supported is an
// error that names the field, never ignored.
func TestParseConfigRefuses(t *testing.T) {
	for _, tt := range []struct{ extra, want string }{
		{`"rope_scaling":{"rope_type":"yarn","factor":4}`, `rope type "yarn"`},
		{`"hidden_act":"gelu"`, "hidden_act"},
		{`"quantization_config":{"bits":4}`, "quantization_config"},
		{`"partial_rotary_factor":0.5`, "partial_rotary_factor"},
		{`"sliding_window":8`, "sliding_window"},
		{`"num_key_value_heads":3`, "num_key_value_heads"},
		{`"head_dim":5`, "head_dim"},
		{`"hidden_size":-1`, "hidden_size"},
		{`"vocab_size":99999999999`, "vocab_size"},
		{`"eos_token_id":"x"`, "eos_token_id"},
		{`"architectures":[]`, "architectures"},
		{`"rope_theta":-1`, "rope_theta"},
	} {
		if _, err := ParseConfig([]byte("{" + small + "," + tt.extra + "}")); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %s", tt.extra, err, tt.want)
		}
	}
}

func TestNewRefusesUnknownArchitecture(t *testing.T) {
	_, err := New(Config{Architecture: "MambaForCausalLM"}, shapes{})
	if err == nil || !strings.Contains(err.Error(), "MambaForCausalLM") || !strings.Contains(err.Error(), "LlamaForCausalLM") {
		t.Errorf("error %v must name the architecture and the known ones", err)
	}
}

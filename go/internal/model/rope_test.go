package model

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// TestA39_Frequencies compares every inverse frequency, and the factor of cosines and
// sines, with transformers' (scripts/golden/rope_frequencies.py).
func TestA39_Frequencies(t *testing.T) {
	var cases []struct {
		Name      string
		Config    json.RawMessage
		Length    int
		InvFreq   []float32 `json:"inv_freq"`
		Attention float64   `json:"attention_factor"`
	}
	text, err := os.ReadFile("testdata/rope.json")
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil || len(cases) == 0 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, tt := range cases {
		t.Run(tt.Name, func(t *testing.T) {
			c, err := ParseConfig(tt.Config)
			if err != nil {
				t.Fatal(err)
			}
			got := c.Ropes[0].Frequencies(tt.Length)
			if len(got) != len(tt.InvFreq) {
				t.Fatalf("%d frequencies, want %d", len(got), len(tt.InvFreq))
			}
			for i, want := range tt.InvFreq {
				if d := math.Abs(float64(got[i] - want)); !(d <= 1e-6*float64(want)) {
					t.Errorf("frequency %d is %v, transformers has %v", i, got[i], want)
				}
			}
			if d := math.Abs(c.Ropes[0].AttentionFactor - tt.Attention); !(d < 1e-9) {
				t.Errorf("attention factor %v, transformers has %v", c.Ropes[0].AttentionFactor, tt.Attention)
			}
		})
	}
}

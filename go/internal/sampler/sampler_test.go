package sampler

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// TestAdjustment: the generated tokens are listed, of which the last may be known
// to the device alone; where there is nothing to do, nothing is asked for.
func TestAdjustment(t *testing.T) {
	bits := func(x float64) int32 { return int32(math.Float32bits(float32(x))) }
	base := core.DefaultSampling()
	penalties := base
	penalties.FrequencyPenalty, penalties.RepetitionPenalty = 0.5, 1.25
	biased := base
	biased.LogitBias = []core.TokenBias{{Token: 7, Bias: -2}}
	held := biased
	held.MinTokens = 2
	for name, test := range map[string]struct {
		params   core.SamplingParams
		known    []int32 // generated tokens that the host has seen
		position int
		want     *ops.Adjustment
		data     []int32
	}{
		"nothing":                     {base, []int32{9}, 4, nil, nil},
		"penalties, first token":      {penalties, nil, 3, nil, nil},
		"penalties, known tokens":     {penalties, []int32{9, 9}, 5, &ops.Adjustment{Outputs: 2}, []int32{9, 9}},
		"penalties, one on its way":   {penalties, []int32{9}, 5, &ops.Adjustment{Outputs: 2}, []int32{9, -5}},
		"penalties, first on its way": {penalties, nil, 4, &ops.Adjustment{Outputs: 1}, []int32{-5}},
		"bias":                        {biased, []int32{9}, 4, &ops.Adjustment{Biases: 1}, []int32{7, bits(-2)}},
		"held back":                   {held, []int32{9}, 4, &ops.Adjustment{Biases: 2}, []int32{7, bits(-2), 2, bits(math.Inf(-1))}},
		"held back long enough":       {held, []int32{9, 9}, 5, &ops.Adjustment{Biases: 1}, []int32{7, bits(-2)}},
	} {
		r := &core.Req{Params: test.params, IDs: append([]int32{1, 2, 3}, test.known...), PromptLen: 3, Slot: 4, Ends: []int32{2}}
		if got := Adjusts(r, test.position); got != (test.want != nil) {
			t.Errorf("%s: needs an adjustment: %v", name, got)
		}
		if test.want == nil {
			continue
		}
		before := []int32{-9}
		a, data := Adjustment(r, test.position, 6, before)
		test.want.Row, test.want.First = 6, 1
		test.want.Frequency, test.want.Repetition = float32(test.params.FrequencyPenalty), float32(test.params.RepetitionPenalty)
		if diff := cmp.Diff(*test.want, a, cmpopts.IgnoreUnexported(ops.Adjustment{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(append(before, test.data...), data); diff != "" {
			t.Errorf("%s: data: %s", name, diff)
		}
	}
}

// TestScoring: log-probabilities are taken at the temperature that tokens are drawn
// with, and at 1 if there is none.
func TestScoring(t *testing.T) {
	p := core.DefaultSampling()
	p.TopLogprobs = 3
	for temperature, want := range map[float64]float32{0: 1, 1e-6: 1, 0.5: 0.5} {
		p.Temperature = temperature
		if got := Scoring(p, 2); got != (ops.Scoring{Row: 2, Token: -1, Top: 3, Temperature: want}) {
			t.Errorf("temperature %v: %+v", temperature, got)
		}
	}
}

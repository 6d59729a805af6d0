package llm_test

import (
	"testing"

	"github.com/minisgl/minisgl/go/llm"
)

// A generation's operations are those of its forward passes, each in its part.
func TestTimeOps(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 256, MaxSeqLenOverride: 64, DisableOverlap: true})
	var timer llm.OpTimer
	if err := l.TimeOps(&timer); err != nil {
		t.Fatal(err)
	}
	params := llm.DefaultSampling()
	params.MaxTokens, params.IgnoreEOS = 5, true
	tokens(t, l, []llm.Request{{TokenIDs: []int32{5, 6, 7}, Params: params}})
	counts := map[string]int{}
	for _, op := range timer.Take() {
		counts[op.Part+"/"+op.Kind] += op.Count
		if op.Time <= 0 {
			t.Errorf("%+v took no time", op)
		}
	}
	const passes, layers = 5, 2
	for key, want := range map[string]int{
		"embedding/embed": passes, "sampling/sample": passes, "head/linear": passes, "head/gather_rows": passes,
		"attention/linear": 2 * layers * passes, "attention/attention": layers * passes, "attention/rope_store": layers * passes,
		"mlp/linear": 2 * layers * passes, "mlp/act_mul": layers * passes, "norm/rms_norm": (2*layers + 1) * passes,
	} {
		if counts[key] != want {
			t.Errorf("%s: %d operations, want %d", key, counts[key], want)
		}
	}
	if err := l.TimeOps(nil); err != nil {
		t.Fatal(err)
	}
	tokens(t, l, []llm.Request{{TokenIDs: []int32{5, 6, 7}, Params: params}})
	if again := timer.Take(); len(again) != 0 {
		t.Errorf("%d kinds of operations were timed after the end", len(again))
	}
}

func TestTimeOpsElsewhere(t *testing.T) {
	l := open(t, llm.Config{Model: tinyModel, Device: "ref", DType: "float32", NumPageOverride: 256, MaxSeqLenOverride: 64})
	if err := l.TimeOps(new(llm.OpTimer)); err == nil {
		t.Error("no error")
	}
}

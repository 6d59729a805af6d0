package dataset

import (
	"slices"
	"testing"
)

// Python's random.seed(0) gives these, as mini-sglang's benchmark draws them.
func TestMini(t *testing.T) {
	src := NewSource("", 256, 0)
	rows, err := src.Mini(RandomShape{InputLen: 1024, OutputLen: 1024})
	if err != nil {
		t.Fatal(err)
	}
	input, output := 0, 0
	for _, r := range rows {
		input, output = input+len(r.IDs), output+r.OutputLen
	}
	if input != 142827 || output != 133966 {
		t.Errorf("%d tokens in and %d out, want 142827 and 133966", input, output)
	}
	if !slices.Equal(rows[0].IDs[:3], []int32{6311, 6890, 663}) || rows[0].OutputLen != 845 || rows[1].OutputLen != 312 {
		t.Errorf("the first prompt begins with %v, answers have %d and %d tokens", rows[0].IDs[:3], rows[0].OutputLen, rows[1].OutputLen)
	}
	if _, err := src.Mini(RandomShape{InputLen: 99, OutputLen: 1024}); err == nil {
		t.Error("prompts of fewer than 100 tokens are taken")
	}
}

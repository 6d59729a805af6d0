package engine

import (
	"path/filepath"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// A step in steady state allocates nothing on the Go side.
func TestStepDoesNotAllocate(t *testing.T) {
	r := newSolo(t, filepath.Join(tiny, "qwen3-tied"), ops.BF16, 0, devices(t)["cpu"])
	r.start([]int32{5, 6, 7, 8})
	r.logits(3)
	batch := r.batch(4)
	step := func() {
		if err := r.e.Submit(batch); err != nil {
			t.Fatal(err)
		}
		if _, err := r.e.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations a step, want 0", n)
	}
}

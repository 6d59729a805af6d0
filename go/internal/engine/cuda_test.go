//go:build !cuda && amd64

package engine

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device/cuda"
	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

func cudaEmulated(t *testing.T) *cuda.Device {
	t.Helper()
	dev, err := cuda.NewEmulated(kernels.Forward)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// eachTiny calls check for every tiny model.
func eachTiny(t *testing.T, check func(t *testing.T, path string, want expected)) {
	files, err := filepath.Glob(tiny + "/*/expected.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tiny models: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) { check(t, filepath.Dir(file), readExpected(t, file)) })
	}
}

// TestCUDALogits: the CUDA kernels, emulated, give transformers' logits and tokens.
func TestCUDALogits(t *testing.T) {
	const steps = 6 // of each prompt: the emulation is slow
	eachTiny(t, func(t *testing.T, path string, want expected) {
		for i, p := range want.Prompts {
			want.Prompts[i].Greedy = p.Greedy[:min(steps, len(p.Greedy))]
		}
		compare(t, newSolo(t, path, ops.F32, want.MaxSeqLen, cudaEmulated(t)), want)
	})
}

// TestCUDARounded: with weights on tensor cores and rounded caches the logits stay
// within TestRounded's bounds.
func TestCUDARounded(t *testing.T) {
	for _, c := range []struct {
		weights, kv ops.DType
		bound       float64
	}{{ops.BF16, ops.BF16, 0.5}, {ops.F16, ops.F16, 0.03}, {ops.F32, ops.I8, 1}} {
		t.Run(c.weights.String()+","+c.kv.String(), func(t *testing.T) {
			eachTiny(t, func(t *testing.T, path string, want expected) {
				cfg := Config{DType: c.weights, KVDType: c.kv, Quantization: Dequantized, MaxSeqLen: want.MaxSeqLen}
				r, p := newSoloAs(t, path, cfg, cudaEmulated(t)), want.Prompts[0]
				r.start(p.IDs)
				near(t, "first position", p.First, r.logits(1), c.bound)
				if len(p.IDs) > 1 {
					near(t, "last position", p.Last, r.logits(len(p.IDs)), c.bound)
				}
			})
		})
	}
}

// TestCUDAGraphs: graphs change no token, and decoding uses them.
func TestCUDAGraphs(t *testing.T) {
	const steps = 24
	path := filepath.Join(tiny, "qwen3-tied")
	cfg := Config{DType: ops.BF16, KVDType: ops.BF16, Quantization: Dequantized, PageSize: 8}
	tokens := func(rows int) ([]int32, int) {
		dev := cudaEmulated(t)
		dev.UseGraphs(rows)
		r := newSoloAs(t, path, cfg, dev)
		r.start([]int32{1, 2, 3})
		for range steps {
			r.step()
		}
		return r.req.IDs, dev.GraphLaunches()
	}
	want, _ := tokens(0)
	got, launches := tokens(64)
	if !slices.Equal(got, want) {
		t.Errorf("with graphs %v, without %v", got, want)
	}
	if launches < steps/2 {
		t.Errorf("%d of %d steps were launched as graphs, want at least half", launches, steps)
	}
}

package engine

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// The GGUF files of tiny models are written by the gguf package
// (scripts/golden/tiny_gguf.py).

// TestA42_F16EqualsSafetensors: the forms of a model hold the same values, so
// they give the same bits; where divisors stand for a formula of frequencies,
// close ones.
func TestA42_F16EqualsSafetensors(t *testing.T) {
	files := glob(t, "*/f16.gguf")
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			want := readExpected(t, filepath.Join(filepath.Dir(file), "expected.json"))
			a := newSolo(t, filepath.Dir(file), ops.F32, want.MaxSeqLen, devices(t)["cpu"])
			b := newSolo(t, file, ops.F32, want.MaxSeqLen, devices(t)["cpu"])
			bound := 0.0
			if name == "llama-llama3" || name == "phi3-partial" {
				bound = 1e-4
			}
			for _, p := range want.Prompts {
				a.start(p.IDs)
				b.start(p.IDs)
				near(t, "last position", a.logits(len(p.IDs)), b.logits(len(p.IDs)), bound)
			}
		})
	}
	if len(files) < 10 {
		t.Errorf("only %d models have an f16.gguf", len(files))
	}
}

// gain is how much larger the relative error of the logits may be than the root
// of the sum of the squares of the weights' relative errors, to which it would be
// equal if each matrix added its own to the logits. Those of the tiny models
// double what they read, and attention sharpens it. Unrelated logits would be off
// by 1.4.
const gain = 3

// TestA42_Quantized compares quantized files with what transformers computes with
// the values that they stand for, and with the model that was quantized (but a
// mixture of experts, where a small error may choose another expert).
func TestA42_Quantized(t *testing.T) {
	for _, file := range glob(t, "*/q*.gguf") {
		dir := filepath.Dir(file)
		exact := newSolo(t, dir, ops.F32, 0, devices(t)["cpu"])
		bound := gain * weightError(t, dir, file)
		for name, dev := range devices(t) {
			t.Run(filepath.Base(dir)+"/"+filepath.Base(file)+"/"+name, func(t *testing.T) {
				want := readExpected(t, strings.TrimSuffix(file, ".gguf")+".json")
				r := newSolo(t, file, ops.F32, 0, dev)
				compare(t, r, want)
				if r.mc.MoE.NumExperts > 0 {
					return
				}
				for i, p := range want.Prompts {
					r.start(p.IDs)
					exact.start(p.IDs)
					if got := relativeError(exact.logits(len(p.IDs)), r.logits(len(p.IDs))); !(got <= bound) {
						t.Errorf("prompt %d: the logits are off by %v of their size, more than %v", i, got, bound)
					}
				}
			})
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tiny, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

// weightError is the root of the sum of the squares of the relative errors of a
// model's tensors.
func weightError(t *testing.T, exact, quantized string) float64 {
	t.Helper()
	a, err := weights.Open(exact)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := weights.Open(quantized)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var sum float64
	for _, name := range a.Names() {
		x, _ := a.Tensor(name)
		y, ok := b.Tensor(name)
		if !ok {
			t.Fatalf("%s lacks %s", quantized, name)
		}
		e := relativeError(values(x), values(y))
		sum += e * e
	}
	return math.Sqrt(sum)
}

func values(t weights.Tensor) []float32 {
	out := make([]float32, t.Rows()*t.Cols())
	for r := range t.Rows() {
		t.Row(out[r*t.Cols():][:t.Cols()], r)
	}
	return out
}

// relativeError is the size of the difference, as a part of the size of want.
func relativeError(want, got []float32) float64 {
	var difference, size float64
	for i, x := range want {
		d := float64(x - got[i])
		difference, size = difference+d*d, size+float64(x)*float64(x)
	}
	return math.Sqrt(difference / size)
}

package engine

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// roundedError bounds how far the logits of tiny models may be off, as a part of
// their size, when activations are rounded to 8 bits. A rounding is off by half a
// percent of a row of normally distributed values, one percent where the largest
// of 32 stands out (a step is 1/127 of it); the models have nine, which add up as
// their squares do; and they amplify (gain).
const roundedError = gain * 3 * 0.01

// Computing with quantized weights as they are differs from computing with the
// values that they stand for by the rounding of the activations. devicetest holds
// the devices together operation by operation; here a value between two codes may
// be rounded either way.
func TestComputeAsStored(t *testing.T) {
	for _, file := range glob(t, "*/q*.gguf") {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			want := readExpected(t, file[:len(file)-len(".gguf")]+".json")
			exact := newSolo(t, file, ops.F32, 0, devices(t)["cpu"])
			if exact.mc.MoE.NumExperts > 0 {
				t.Skip("a small error may choose another expert")
			}
			compareRounded(t, want, exact, newSoloAs(t, file, Config{}, devices(t)["cpu"]), newSoloAs(t, file, Config{}, devices(t)["ref"]))
		})
	}
}

func compareRounded(t *testing.T, want expected, exact, cpu, ref *solo) {
	t.Helper()
	rounded := false
	for i, p := range want.Prompts {
		for _, s := range []*solo{exact, cpu, ref} {
			s.start(p.IDs)
		}
		a, b, c := exact.logits(len(p.IDs)), cpu.logits(len(p.IDs)), ref.logits(len(p.IDs))
		if e := relativeError(a, b); !(e <= roundedError) {
			t.Errorf("prompt %d: the logits are off by %v of their size, more than %v", i, e, roundedError)
		} else if e > 1e-4 {
			rounded = true
		}
		if e := relativeError(c, b); !(e <= roundedError) {
			t.Errorf("prompt %d: cpu and ref differ by %v of the logits' size", i, e)
		}
	}
	if !rounded {
		t.Error("the activations were not rounded: the quantized weights were not computed with as they are")
	}
}

// Weights that are quantized at load are near to those that they were.
func TestQuantizeAtLoad(t *testing.T) {
	dir := filepath.Join(tiny, "qwen3-tied")
	want := readExpected(t, filepath.Join(dir, "expected.json"))
	exact := newSolo(t, dir, ops.F32, 0, devices(t)["cpu"])
	for _, c := range []struct {
		q     Quantization
		bound float64
	}{{Int8, roundedError}, {Int4, 0.5}} {
		cpu := newSoloAs(t, dir, Config{Quantization: c.q}, devices(t)["cpu"])
		for i, p := range want.Prompts {
			exact.start(p.IDs)
			cpu.start(p.IDs)
			e := relativeError(exact.logits(len(p.IDs)), cpu.logits(len(p.IDs)))
			if !(e <= c.bound && e > 1e-4) {
				t.Errorf("%v: prompt %d: the logits are off by %v of their size; want up to %v", c.q, i, e, c.bound)
			}
		}
	}
}

// Weights of e4m3 that are computed with as they are give the bits that they give when
// they become bfloat16.
func TestFloat8AsStored(t *testing.T) {
	for _, name := range []string{"qwen3-fp8", "llama-fp8"} {
		dir := filepath.Join(tiny, name)
		want := readExpected(t, filepath.Join(dir, "expected.json"))
		ref := devices(t)["ref"]
		wide, stored := newSoloAs(t, dir, Config{DType: ops.BF16}, ref), newSoloAs(t, dir, Config{DType: ops.BF16, HasFloat8: true}, ref)
		if bytes, wide := stored.weightBytes(t, dir), wide.weightBytes(t, dir); bytes > wide*3/4 {
			t.Errorf("%s: %d bytes of weights as they are stored, %d as bfloat16", name, bytes, wide)
		}
		for i, p := range want.Prompts {
			wide.start(p.IDs)
			stored.start(p.IDs)
			if diff := cmp.Diff(wide.logits(len(p.IDs)), stored.logits(len(p.IDs))); diff != "" {
				t.Errorf("%s: prompt %d: the logits differ (-bfloat16 +e4m3):\n%s", name, i, diff)
			}
		}
	}
}

// weightBytes estimates the size of the weights of a model that was loaded like r.
func (r *solo) weightBytes(t *testing.T, path string) int64 {
	t.Helper()
	ck, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	return weightBytes(r.e.cfg, r.mc, ck)
}

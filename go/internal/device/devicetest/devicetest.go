// Package devicetest is the suite that every device must pass: each operation
// over shapes, element types and optional operands, compared with the reference
// device, and batch invariance to the last bit.
package devicetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/ref"
	"github.com/minisgl/minisgl/go/internal/float8"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// Open makes a device. The suite closes it.
type Open func() (device.Device, error)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Run("memory", func(t *testing.T) { testMemory(t, open) })
	t.Run("lists", func(t *testing.T) { testLists(t, open) })
	t.Run("embed", func(t *testing.T) { testEmbed(t, open, weightTypes) })
	t.Run("load_bf16", func(t *testing.T) { testLoadBF16(t, open) })
	t.Run("rms_norm", func(t *testing.T) { testRMSNorm(t, open) })
	t.Run("act_mul", func(t *testing.T) { testActMul(t, open) })
	t.Run("gather_rows", func(t *testing.T) { testGatherRows(t, open) })
	t.Run("linear", func(t *testing.T) { testLinear(t, open, linearCases()) })
	t.Run("linear_scale", func(t *testing.T) { testLinearScale(t, open, weightTypes) })
	t.Run("linear_invariance", func(t *testing.T) { testLinearInvariance(t, open, weightTypes) })
	t.Run("rope", func(t *testing.T) { testRope(t, open) })
	t.Run("attention", func(t *testing.T) { testAttention(t, open, attentionCases()) })
	t.Run("attention_invariance", func(t *testing.T) { testAttentionInvariance(t, open, attentionCases()) })
	t.Run("sample", func(t *testing.T) { testSample(t, open) })
	t.Run("logits", func(t *testing.T) { testLogits(t, open) })
	t.Run("moe", func(t *testing.T) { testMoE(t, open) })
	t.Run("moe_invariance", func(t *testing.T) { testMoEInvariance(t, open) })
	t.Run("moe_passes", func(t *testing.T) { testMoEPasses(t, open) })
	t.Run("errors", func(t *testing.T) { testErrors(t, open) })
}

// Workload runs operations of many shapes and returns all that they computed, so
// that two configurations of a device can be compared bit by bit.
func Workload(t *testing.T, open Open) []float32 {
	r := newRig(t, open)
	var out []float32
	for _, c := range linearCases() {
		out = append(out, c.run(r)...)
	}
	for _, c := range attentionCases() {
		for _, rows := range c.run(r, c.whole()) {
			out = append(out, rows...)
		}
	}
	for _, c := range moeCases() {
		x, logits := c.inputs(40)
		out = append(out, c.open(r).mix(40, x, logits)...)
	}
	out = append(out, normScenario(r, 9, 576, true)...)
	out = append(out, gateScenario(r, 5, 333, ops.SiLU)...)
	return append(out, gateScenario(r, 5, 333, ops.GELUTanh)...)
}

// rig is a device with helpers that fail the test.
type rig struct {
	t *testing.T
	d device.Device
}

func newRig(t *testing.T, open Open) *rig {
	t.Helper()
	d, err := open()
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &rig{t, d}
}

func newRef(t *testing.T) *rig {
	return newRig(t, func() (device.Device, error) { return ref.New(), nil })
}

func (r *rig) alloc(rows, cols int, dt ops.DType) ops.Tensor {
	r.t.Helper()
	tensor := ops.New(0, rows, cols, dt)
	addr, err := r.d.Alloc(tensor.Bytes())
	if err != nil {
		r.t.Fatal(err)
	}
	tensor.Addr = addr
	return tensor
}

func (r *rig) write(tensor ops.Tensor, b []byte) {
	r.t.Helper()
	if err := r.d.Write(tensor.Addr, b); err != nil {
		r.t.Fatal(err)
	}
}

// f32 returns a tensor that holds x.
func (r *rig) f32(rows, cols int, x []float32) ops.Tensor {
	r.t.Helper()
	tensor := r.alloc(rows, cols, ops.F32)
	r.write(tensor, floatBytes(x))
	return tensor
}

// i32 returns a tensor [1, len(x)] that holds x.
func (r *rig) i32(x ...int32) ops.Tensor {
	r.t.Helper()
	tensor := r.alloc(1, len(x), ops.I32)
	r.write(tensor, intBytes(x))
	return tensor
}

// poisoned returns a tensor full of NaN (all bits set, so in every element type).
func (r *rig) poisoned(rows, cols int, dt ops.DType) ops.Tensor {
	r.t.Helper()
	tensor := r.alloc(rows, cols, dt)
	b := make([]byte, tensor.Bytes())
	for i := range b {
		b[i] = 0xff
	}
	r.write(tensor, b)
	return tensor
}

// strided returns a view of the rows of a wider tensor that holds x, and NaN around it.
func (r *rig) strided(rows, cols, left, right int, x []float32) ops.Tensor {
	r.t.Helper()
	wide := make([]float32, rows*(left+cols+right))
	for i := range wide {
		wide[i] = float32(math.NaN())
	}
	for i := range rows {
		copy(wide[i*(left+cols+right)+left:], x[i*cols:(i+1)*cols])
	}
	return r.f32(rows, left+cols+right, wide).Columns(left, cols)
}

// weight loads a weight [rows, cols] that holds x or, if it is of a quantized
// type, codes and scales that x decides.
func (r *rig) weight(rows, cols int, dt ops.DType, x []float32) ops.Tensor {
	r.t.Helper()
	w := device.Weight{Rows: rows, Cols: cols, DType: dt}
	if q, ok := dt.Quant(); ok {
		w.Quant = func(dst device.QuantRow, i int) { quantize(dst, q, x[i*cols:(i+1)*cols]) }
	} else if dt == ops.F8 {
		w.Float8 = func(dst []uint8, scales []float32, i int) { round8(dst, scales, x[i*cols:(i+1)*cols]) }
	} else {
		w.Floats = func(dst []float32, i int) { copy(dst, x[i*cols:(i+1)*cols]) }
	}
	tensor, err := r.d.Load(w)
	if err != nil {
		r.t.Fatal(err)
	}
	return tensor
}

// quantize fills dst with all kinds of codes, the largest and the smallest among
// them, and scales and minima, of either sign, that are float16 values.
func quantize(dst device.QuantRow, q ops.Quant, x []float32) {
	for i, v := range x {
		dst.Codes[i] = uint8(math.Float32bits(v)>>8) & uint8(1<<q.Bits-1)
	}
	dst.Codes[0], dst.Codes[len(x)-1] = 0, uint8(1<<q.Bits-1)
	for g := range dst.Scales {
		dst.Scales[g] = float32(math.Round(float64(x[g*q.Group]*128))) / 4096
		dst.Minima[g] = x[g*q.Group+1]
	}
}

// round8 fills dst with x as e4m3, the largest and the smallest magnitudes among it, and
// scales of which each differs.
func round8(dst []uint8, scales, x []float32) {
	for i, v := range x {
		dst[i] = float8.Round(v * 8)
	}
	dst[0], dst[len(x)-1] = 0x7e, 0x81
	for g := range scales {
		scales[g] = (1 + float32(g)/7) / 8
	}
	scales[0] /= 448
}

// weightTypes are the types of weights that all devices have.
var weightTypes = []ops.DType{ops.F32, ops.BF16, ops.F16, ops.Q8, ops.Q4, ops.Q4M, ops.Q6, ops.Q8M}

// run runs one list.
func (r *rig) run(l *ops.List) {
	r.t.Helper()
	if err := r.try(l); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) try(l *ops.List) error {
	if err := r.d.Submit(l); err != nil {
		return err
	}
	return r.d.Wait()
}

// floats reads a tensor, row by row.
func (r *rig) floats(tensor ops.Tensor) []float32 {
	r.t.Helper()
	out := make([]float32, 0, int(tensor.Rows)*int(tensor.Cols))
	b := make([]byte, 4*tensor.Cols)
	for i := range int(tensor.Rows) {
		if err := r.d.Read(b, tensor.Addr+ops.Addr(4*i*int(tensor.Stride))); err != nil {
			r.t.Fatal(err)
		}
		for c := range int(tensor.Cols) {
			out = append(out, math.Float32frombits(le32(b[4*c:])))
		}
	}
	return out
}

// ints reads an I32 tensor.
func (r *rig) ints(tensor ops.Tensor) []int32 {
	r.t.Helper()
	out := make([]int32, 0, tensor.Cols)
	for _, f := range r.floats(tensor) {
		out = append(out, int32(math.Float32bits(f)))
	}
	return out
}

// agree runs a scenario on the device and on the reference and compares.
func agree(t *testing.T, open Open, tolerance float64, scenario func(r *rig) []float32) {
	t.Helper()
	got, want := scenario(newRig(t, open)), scenario(newRef(t))
	requireClose(t, got, want, tolerance)
}

// requireClose wants |got - want| <= tolerance · max(1, |want|).
func requireClose(t *testing.T, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i := range want {
		diff := math.Abs(float64(got[i]) - float64(want[i]))
		if !(diff <= tolerance*max(1, math.Abs(float64(want[i])))) {
			t.Fatalf("value %d of %d is %v, want %v", i, len(want), got[i], want[i])
		}
	}
}

// requireSame wants equal bits.
func requireSame(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d of %d is %v (%#08x), want %v (%#08x)", what, i, len(want),
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// random returns n normally distributed values, always the same for a seed.
func random(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

func name(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, f := range x {
		u := math.Float32bits(f)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}

func intBytes(x []int32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	return b
}

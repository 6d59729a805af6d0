package cpu

import (
	"math"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/devicetest"
	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cpu"
)

var _ device.Device = (*Device)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func opener(threads int) devicetest.Open {
	return func() (device.Device, error) { return New(threads) }
}

// useISA makes devices use an instruction set, and skips where it is missing.
func useISA(t *testing.T, isa string) {
	t.Setenv("MINISGL_CPU_ISA", isa)
	if _, err := kernels.ISA(); err != nil {
		t.Skipf("%s: %v", isa, err)
	}
}

var isas = []string{"amx", "avx512_bf16", "avx512", "avx2", "neon_i8mm", "neon_dot", "portable"}

func TestDevice(t *testing.T) {
	for _, isa := range isas {
		t.Run(isa, func(t *testing.T) {
			useISA(t, isa)
			devicetest.Run(t, opener(2))
		})
	}
}

// The number of threads never shows, and AVX2, AVX-512 and its BF16 give the same bits.
func TestSameBits(t *testing.T) {
	results := map[string][]float32{}
	for _, isa := range isas {
		t.Run(isa, func(t *testing.T) {
			useISA(t, isa)
			one := devicetest.Workload(t, opener(1))
			for _, threads := range []int{2, 3, 7} {
				requireSame(t, devicetest.Workload(t, opener(threads)), one)
			}
			results[isa] = one
		})
	}
	for _, isa := range []string{"avx512", "avx512_bf16"} {
		if results["avx2"] != nil && results[isa] != nil {
			requireSame(t, results["avx2"], results[isa])
		}
	}
}

func requireSame(t *testing.T, got, want []float32) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("value %d of %d is %v, want %v", i, len(want), got[i], want[i])
		}
	}
}

func TestUnknownISA(t *testing.T) {
	t.Setenv("MINISGL_CPU_ISA", "abacus")
	if d, err := New(1); err == nil {
		d.Close()
		t.Error("no error")
	}
}

func TestThreads(t *testing.T) {
	if d, err := New(kernels.MaxThreads + 1); err == nil {
		d.Close()
		t.Error("too many threads: no error")
	}
	d, err := New(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Threads() < 1 {
		t.Errorf("%d threads", d.Threads())
	}
}

func TestClosed(t *testing.T) {
	d, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	devicetest.Closed(t, d)
}

func TestLayout(t *testing.T) {
	var op ops.Op
	var tensor ops.Tensor
	var s ops.Sampling
	var a ops.Adjustment
	var p ops.Scoring
	want := kernels.Layout{
		Op: unsafe.Sizeof(op), OpKind: unsafe.Offsetof(op.Kind), OpT: unsafe.Offsetof(op.T),
		OpF: unsafe.Offsetof(op.F), OpI: unsafe.Offsetof(op.I), OpAlign: unsafe.Alignof(op),
		Tensor: unsafe.Sizeof(tensor), TensorAddr: unsafe.Offsetof(tensor.Addr), TensorRows: unsafe.Offsetof(tensor.Rows),
		TensorCols: unsafe.Offsetof(tensor.Cols), TensorStride: unsafe.Offsetof(tensor.Stride), TensorDType: unsafe.Offsetof(tensor.DType),
		Sampling: unsafe.Sizeof(s), SamplingTemperature: unsafe.Offsetof(s.Temperature),
		SamplingTopP: unsafe.Offsetof(s.TopP), SamplingMinP: unsafe.Offsetof(s.MinP), SamplingTopK: unsafe.Offsetof(s.TopK),
		SamplingSeedLo: unsafe.Offsetof(s.SeedLo), SamplingSeedHi: unsafe.Offsetof(s.SeedHi),
		SamplingPosition: unsafe.Offsetof(s.Position), SamplingSlot: unsafe.Offsetof(s.Slot),
		Adjustment: unsafe.Sizeof(a), AdjustmentRepetition: unsafe.Offsetof(a.Repetition), AdjustmentBiases: unsafe.Offsetof(a.Biases),
		Scoring: unsafe.Sizeof(p), ScoringTop: unsafe.Offsetof(p.Top), ScoringTemperature: unsafe.Offsetof(p.Temperature),
	}
	if diff := cmp.Diff(want, kernels.CLayout()); diff != "" {
		t.Errorf("Go's layout (-) is not C's (+):\n%s", diff)
	}
}

// tinyList is a list of n operations that cost next to nothing.
func tinyList(tb testing.TB, d *Device, n int) *ops.List {
	tb.Helper()
	a, err := d.Alloc(4096)
	if err != nil {
		tb.Fatal(err)
	}
	x := ops.New(a, 1, 16, ops.F32)
	var l ops.List
	for range n {
		l.RMSNorm(x, x, x, ops.Tensor{}, 1)
	}
	return &l
}

func TestSubmitDoesNotAllocate(t *testing.T) {
	d, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l := tinyList(t, d, 10)
	n := testing.AllocsPerRun(100, func() {
		if d.Submit(l) != nil || d.Wait() != nil {
			t.Fatal("submit failed")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per list, want 0", n)
	}
}

func BenchmarkSubmit(b *testing.B) {
	d, err := New(2)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	l := tinyList(b, d, 300)
	b.ReportAllocs()
	for b.Loop() {
		if d.Submit(l) != nil || d.Wait() != nil {
			b.Fatal("submit failed")
		}
	}
}

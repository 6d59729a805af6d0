package weights

import (
	"math"
	"slices"
	"testing"
)

func TestDummyRows(t *testing.T) {
	const rows, cols = 64, 1025
	tensor := Dummy{}.Make("model.layers.0.mlp.up_proj.weight", rows, cols)
	if tensor.Rows() != rows || tensor.Cols() != cols {
		t.Fatalf("%d × %d", tensor.Rows(), tensor.Cols())
	}
	var sum, squares, largest float64
	seen := make(map[float32]int)
	first := make([]float32, cols)
	tensor.Row(first, 0)
	for row := range rows {
		got, again := make([]float32, cols), make([]float32, cols)
		tensor.Row(got, row)
		Dummy{}.Make(tensor.Name(), rows, cols).Row(again, row)
		if !slices.Equal(got, again) || row > 0 && slices.Equal(got, first) {
			t.Fatalf("row %d differs from itself, or equals row 0", row)
		}
		for _, x := range got {
			sum, squares, largest = sum+float64(x), squares+float64(x*x), max(largest, math.Abs(float64(x)))
			seen[x]++
		}
	}
	n := float64(rows * cols)
	mean, deviation := sum/n, math.Sqrt(squares/n)
	want := 1 / math.Sqrt(cols)
	if math.Abs(mean) > want/50 || math.Abs(deviation-want) > want/50 || largest > 4*want || len(seen) < 500 {
		t.Errorf("mean %g, deviation %g (want %g), largest %g, %d values", mean, deviation, want, largest, len(seen))
	}
	other := make([]float32, cols)
	Dummy{}.Make("another", rows, cols).Row(other, 0)
	if slices.Equal(first, other) {
		t.Error("two names have the same values")
	}
}

func TestDummyKinds(t *testing.T) {
	row := make([]float32, 3)
	for _, name := range []string{"model.norm.weight", "model.layers.3.self_attn.q_norm.weight", "model.layers.0.input_layernorm.weight"} {
		Dummy{}.Make(name, 1, 3).Row(row, 0)
		if !slices.Equal(row, []float32{1, 1, 1}) {
			t.Errorf("%s holds %v", name, row)
		}
	}
	Dummy{}.Make("q_proj.bias", 1, 3).Row(row, 0)
	if slices.ContainsFunc(row, func(x float32) bool { return x == 0 || x > 0.08 || x < -0.08 }) {
		t.Errorf("a bias holds %v", row)
	}
	if _, ok := (Dummy{}).Tensor("lm_head.weight"); ok {
		t.Error("the model would be untied, whatever its configuration says")
	}
}

func BenchmarkDummyRow(b *testing.B) {
	tensor, row := Dummy{}.Make("x", 1<<20, 1024), make([]float32, 1024)
	b.SetBytes(1024)
	for i := range b.N {
		tensor.Row(row, i&0xfffff)
	}
}

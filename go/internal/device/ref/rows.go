package ref

import (
	"math"

	"github.com/minisgl/minisgl/go/internal/ops"
)

func (m *memory) embed(op ops.Op) {
	dst, table := m.typed(op.T[0], ops.F32, int(op.T[0].Rows), int(op.T[1].Cols)), m.weight(op.T[1])
	ids := m.typed(op.T[2], ops.I32, 1, int(dst.Rows)).ints(0)
	scale := op.F[0]
	var last []int
	if op.T[3].Valid() {
		last = m.typed(op.T[3], ops.I32, 1, int(op.T[3].Cols)).ints(0)
	}
	for t, id := range ids {
		if id < 0 {
			require(-id-1 < len(last), "id %d names row %d of a table of %d last tokens", id, -id-1, len(last))
			id = last[-id-1]
		}
		row := table.row(id)
		for i := range row {
			if scale != 0 {
				row[i] *= scale
			}
		}
		dst.setRow(t, row)
	}
}

// weight is view for a tensor of Load.
func (m *memory) weight(t ops.Tensor) view {
	_, quantized := t.DType.Quant()
	require(t.DType.Float() || quantized, "weight %v: element type is not supported", t)
	return m.view(t)
}

// meeting returns x as it meets a weight of type dt: rounded to bfloat16 if the
// weight is bfloat16; if it is quantized, rounded to 8 bits in groups of 32; in a
// group with a value of more than outlier times the row's root mean square, what
// that left is rounded likewise.
func meeting(x []float32, dt ops.DType) []float32 {
	if dt == ops.BF16 {
		out := make([]float32, len(x))
		for i, v := range x {
			out[i] = math.Float32frombits(uint32(toBF16(v)) << 16)
		}
		return out
	}
	if _, ok := dt.Quant(); !ok {
		return x
	}
	const group, outlier = 32, 12
	squares, out := dot(x, x), make([]float32, len(x))
	for g := 0; g < len(x); g += group {
		in, to := x[g:g+group], out[g:g+group]
		largest := float64(round8(to, in))
		if largest*largest <= outlier*outlier*squares/float64(len(x)) {
			continue
		}
		left, again := make([]float32, group), make([]float32, group)
		for i, v := range in {
			left[i] = v - to[i]
		}
		round8(again, left)
		for i, v := range again {
			to[i] += v
		}
	}
	return out
}

// round8 rounds x to multiples of 1/127 of its largest magnitude, which it returns.
func round8(out, x []float32) (largest float32) {
	for _, v := range x {
		largest = max(largest, float32(math.Abs(float64(v))))
	}
	var inverse float32
	if largest > 0 {
		inverse = 127 / largest
	}
	for i, v := range x {
		out[i] = float32(math.RoundToEven(float64(v*inverse))) * (largest / 127)
	}
	return largest
}

func (m *memory) rmsNorm(op ops.Op) {
	rows, cols := int(op.T[1].Rows), int(op.T[1].Cols)
	dst, x := m.typed(op.T[0], ops.F32, rows, cols), m.typed(op.T[1], ops.F32, rows, cols)
	w := m.typed(op.T[2], ops.F32, 1, cols).row(0)
	for r := range rows {
		in := x.row(r)
		if op.T[3].Valid() {
			residual := m.typed(op.T[3], ops.F32, rows, cols)
			sum := residual.row(r)
			for i := range sum {
				sum[i] += in[i]
			}
			residual.setRow(r, sum)
			in = sum
		}
		dst.setRow(r, normalise(in, w, op.F[0]))
	}
}

// normalise returns x / sqrt(mean(x²) + eps) * w.
func normalise(x, w []float32, eps float32) []float32 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(float64(v) * scale * float64(w[i]))
	}
	return out
}

func (m *memory) linear(op ops.Op) {
	x, w := m.typed(op.T[1], ops.F32, int(op.T[1].Rows), int(op.T[2].Cols)), m.weight(op.T[2])
	dst := m.typed(op.T[0], ops.F32, int(x.Rows), int(w.Rows))
	bias := make([]float32, w.Rows)
	if op.T[3].Valid() {
		bias = m.typed(op.T[3], ops.F32, 1, int(w.Rows)).row(0)
	}
	in, out := make([][]float32, x.Rows), make([][]float32, x.Rows)
	for r := range in {
		in[r], out[r] = meeting(x.row(r), w.DType), make([]float32, w.Rows)
	}
	for n := range bias {
		row := w.row(n)
		for r := range in {
			out[r][n] = float32(dot(in[r], row)) + bias[n]
		}
	}
	for r := range out {
		dst.setRow(r, out[r])
	}
}

// dot works on copies, as all that is computed here does; memory's views are what the race detector is to watch.
//
//go:norace
func dot(a, b []float32) float64 {
	var sum float64
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// activate applies the function of a gate.
func activate(kind ops.Activation, x float64) float64 {
	if kind == ops.GELUTanh {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x / (1 + math.Exp(-x))
}

func (m *memory) actMul(op ops.Op) {
	rows, f := int(op.T[0].Rows), int(op.T[0].Cols)
	dst, x := m.typed(op.T[0], ops.F32, rows, f), m.typed(op.T[1], ops.F32, rows, 2*f)
	kind := ops.Activation(op.I[0])
	require(kind == ops.SiLU || kind == ops.GELUTanh, "activation %d is not known", kind)
	out := make([]float32, f)
	for r := range rows {
		in := x.row(r)
		for i := range out {
			gate, up := float64(in[i]), float64(in[f+i])
			out[i] = float32(activate(kind, gate) * up)
		}
		dst.setRow(r, out)
	}
}

func (m *memory) gatherRows(op ops.Op) {
	dst, x := m.typed(op.T[0], ops.F32, int(op.T[0].Rows), int(op.T[1].Cols)), m.view(op.T[1])
	require(x.DType == ops.F32, "operand %v: element type is not supported, want f32", x.Tensor)
	for t, r := range m.typed(op.T[2], ops.I32, 1, int(dst.Rows)).ints(0) {
		dst.setRow(t, x.row(r))
	}
}

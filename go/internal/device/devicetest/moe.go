package devicetest

import (
	"math"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// moeCase is a mixture of n experts, hidden size h and intermediate size f.
type moeCase struct {
	n, topK, h, f int
	normalise     bool
	dt            ops.DType
}

// moeRig holds a case's weights on a device.
type moeRig struct {
	*rig
	moeCase
	gateUp, down ops.Tensor
}

func (c moeCase) open(r *rig) *moeRig {
	stack := func(seed uint64, rows, cols int) ops.Tensor {
		x := make([]float32, 0, c.n*ops.ExpertRows(rows)*cols)
		for e := range c.n {
			x = append(x, random(seed+uint64(e), rows*cols)...)
			x = append(x, make([]float32, (ops.ExpertRows(rows)-rows)*cols)...)
		}
		for i := range x { // outputs of about one
			x[i] /= float32(math.Sqrt(float64(cols)))
		}
		return r.weight(len(x)/cols, cols, c.dt, x)
	}
	return &moeRig{r, c, stack(100, 2*c.f, c.h), stack(900, c.h, c.f)}
}

// inputs returns m rows of x and of logits; every fifth row's logits are all equal.
func (c moeCase) inputs(m int) (x, logits []float32) {
	x, logits = random(3, m*c.h), random(4, m*c.n)
	for i := range logits {
		if i/c.n%5 == 4 {
			logits[i] = 0.5
		}
	}
	return x, logits
}

// mix runs the operation for m rows; the rows of dst and x are parts of wider ones.
func (r *moeRig) mix(m int, x, logits []float32) []float32 {
	wide := r.poisoned(m, r.h+3, ops.F32)
	dst := wide.Columns(1, r.h)
	var l ops.List
	l.MoE(dst, r.strided(m, r.h, 2, 1, x), r.strided(m, r.n, 1, 1, logits), r.gateUp, r.down,
		ops.Experts{TopK: r.topK, Normalise: r.normalise})
	r.run(&l)
	for i, f := range r.floats(wide) {
		if col := i % (r.h + 3); (col < 1 || col > r.h) && f == f {
			r.t.Fatalf("%+v: wrote outside of its output, column %d", r.moeCase, col-1)
		}
	}
	return r.floats(dst)
}

func moeCases() []moeCase {
	return []moeCase{
		{1, 1, 16, 16, true, ops.F32},
		{1, 1, 7, 3, false, ops.BF16},
		{4, 4, 33, 24, false, ops.F32},
		{4, 3, 48, 5, false, ops.BF16},
		{8, 2, 64, 24, true, ops.BF16},
		{17, 5, 31, 19, true, ops.F32},
		{40, 8, 20, 40, false, ops.F32},
		{3, 2, 300, 150, true, ops.BF16},
		{4, 3, 70, 33, true, ops.F16},
		{8, 2, 64, 32, true, ops.Q8},
		{5, 3, 96, 64, false, ops.Q4M},
	}
}

func testMoE(t *testing.T, open Open) {
	testMoECases(t, open, moeCases())
	t.Run("in place", func(t *testing.T) { agree(t, open, 1e-5, moeInPlace) })
	t.Run("one expert is an mlp", func(t *testing.T) { testOneExpert(t, open) })
	t.Run("routing", func(t *testing.T) { testRouting(t, open) })
	t.Run("nan", func(t *testing.T) { testMoENaN(t, open) })
}

func testMoECases(t *testing.T, open Open, cases []moeCase) {
	for _, c := range cases {
		for _, m := range []int{1, 2, 3, 7, 13, 16, 40} {
			t.Run(name("%d of %d/%dx%d/%v/%d", c.topK, c.n, c.h, c.f, c.dt, m), func(t *testing.T) {
				tolerance := 1e-5
				if _, quantized := c.dt.Quant(); quantized { // what is between the projections may be rounded to the next code
					tolerance = 5e-3
				}
				agree(t, open, tolerance, func(r *rig) []float32 {
					x, logits := c.inputs(m)
					return c.open(r).mix(m, x, logits)
				})
			})
		}
	}
}

func moeInPlace(r *rig) []float32 {
	const m = 20
	c := moeCase{6, 2, 24, 10, true, ops.F32}
	mr := c.open(r)
	x, logits := c.inputs(m)
	at := r.f32(m, c.h, x)
	var l ops.List
	l.MoE(at, at, r.f32(m, c.n, logits), mr.gateUp, mr.down, ops.Experts{TopK: c.topK, Normalise: true})
	r.run(&l)
	return r.floats(at)
}

// With one expert the result has the bits of Linear, ActMul, Linear.
func testOneExpert(t *testing.T, open Open) {
	const m = 14
	c := moeCase{1, 1, 48, 32, true, ops.BF16} // no padding: the experts' weights are Linear's
	r := c.open(newRig(t, open))
	x, logits := c.inputs(m)
	gateUp, act, out := r.alloc(m, 2*c.f, ops.F32), r.alloc(m, c.f, ops.F32), r.alloc(m, c.h, ops.F32)
	var l ops.List
	l.Linear(gateUp, r.f32(m, c.h, x), r.gateUp, ops.Tensor{})
	l.ActMul(act, gateUp, ops.SiLU)
	l.Linear(out, act, r.down, ops.Tensor{})
	r.run(&l)
	got, want := r.mix(m, x, logits), r.floats(out)
	if r.d.Name() == "ref" { // rounds once more in Linear
		requireClose(t, got, want, 1e-6)
		return
	}
	requireSame(t, "one expert", got, want)
}

// Experts whose output is constant tell which were chosen, and with what weight:
// expert e computes x₀ · silu(1) · 10^-e · (1, 1).
func testRouting(t *testing.T, open Open) {
	const n, h = 4, 2
	r := newRig(t, open)
	gateUp, down := make([]float32, n*16*h), make([]float32, n*16)
	for e := range n {
		gateUp[e*16*h] = 1   // gate reads x₀
		gateUp[e*16*h+h] = 1 // up too
		down[e*16], down[e*16+1] = float32(math.Pow10(-e)), float32(math.Pow10(-e))
	}
	gu, dn := r.weight(n*16, h, ops.F32, gateUp), r.weight(n*16, 1, ops.F32, down)
	silu := 1 / (1 + math.Exp(-1))
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	for _, c := range []struct {
		logits    []float32
		topK      int
		normalise bool
		want      float64
	}{
		{[]float32{0, 0, 0, 0}, 2, false, 0.25 + 0.025},                             // equals: the smaller ids
		{[]float32{0, 0, 0, 0}, 2, true, 0.5 + 0.05},                                // scaled
		{[]float32{ln(0.1), ln(0.2), ln(0.3), ln(0.4)}, 2, false, 0.003 + 0.0004},   // the largest
		{[]float32{ln(0.1), ln(0.2), ln(0.3), ln(0.4)}, 1, true, 0.001},             // one, scaled
		{[]float32{ln(0.4), ln(0.1), ln(0.4), ln(0.1)}, 3, false, 0.4 + .01 + .004}, // equals behind larger ones
		{[]float32{-200, 200, -200, 0}, 2, true, 0.1},                               // no overflow
	} {
		dst := r.poisoned(1, h, ops.F32)
		var l ops.List
		l.MoE(dst, r.f32(1, h, []float32{1, 7}), r.f32(1, n, c.logits), gu, dn, ops.Experts{TopK: c.topK, Normalise: c.normalise})
		r.run(&l)
		want := float32(c.want * silu)
		requireClose(t, r.floats(dst), []float32{want, want}, 1e-6)
	}
}

// Logits without order are no error, and spoil their own row only.
func testMoENaN(t *testing.T, open Open) {
	const m = 9
	c := moeCase{5, 2, 24, 10, true, ops.F32}
	r := c.open(newRig(t, open))
	x, logits := c.inputs(m)
	want := r.mix(m, x, logits)
	for i := range c.n {
		logits[4*c.n+i] = float32(math.NaN())
	}
	got := r.mix(m, x, logits)
	for i, f := range got[4*c.h : 5*c.h] {
		if f == f {
			t.Errorf("column %d of a row with NaN logits is %v", i, f)
		}
	}
	copy(got[4*c.h:5*c.h], want[4*c.h:])
	requireSame(t, "the other rows", got, want)
}

// A row alone gives the bits that it gives among others, also when there are so
// many that a device may take them in several passes.
func testMoEInvariance(t *testing.T, open Open) {
	const m = 40
	for _, c := range moeCases() {
		r := c.open(newRig(t, open))
		x, logits := c.inputs(m)
		alone := make([]float32, 0, m*c.h)
		for i := range m {
			alone = append(alone, r.mix(1, x[i*c.h:(i+1)*c.h], logits[i*c.n:(i+1)*c.n])...)
		}
		for _, rows := range []int{2, 3, 5, 8, 13, 24, 31, m} {
			requireSame(t, name("%+v, %d rows", c, rows), r.mix(rows, x[:rows*c.h], logits[:rows*c.n]), alone[:rows*c.h])
		}
	}
}

// testMoEPasses has more rows than a device's scratch may be made for.
func testMoEPasses(t *testing.T, open Open) {
	const m, times = 40, 100
	c := moeCase{8, 8, 3, 200, true, ops.BF16}
	r := c.open(newRig(t, open))
	x, logits := c.inputs(m)
	part := r.mix(m, x, logits)
	var long, longLogits, want []float32
	for range times {
		long, longLogits, want = append(long, x...), append(longLogits, logits...), append(want, part...)
	}
	requireSame(t, name("%d rows", m*times), r.mix(m*times, long, longLogits), want)
}

func moeOp(r *rig) ops.Op {
	return recorded(func(l *ops.List) {
		l.MoE(r.alloc(2, 10, ops.F32), r.alloc(2, 10, ops.F32), r.alloc(2, 3, ops.F32),
			r.weight(3*16, 10, ops.F32, random(1, 3*16*10)), r.weight(3*16, 4, ops.F32, random(2, 3*16*4)), ops.Experts{TopK: 2})
	})
}

func badMoEOps() []badOp {
	with := func(what string, change func(op *ops.Op)) badOp {
		return badOp{"moe, " + what, func(r *rig) ops.Op {
			op := moeOp(r)
			change(&op)
			return op
		}}
	}
	return []badOp{
		with("no expert of a row", func(op *ops.Op) { op.I[0] = 0 }),
		with("more experts of a row than there are", func(op *ops.Op) { op.I[0] = 4 }),
		with("no logits", func(op *ops.Op) { op.T[2].Addr = 0 }),
		with("no experts", func(op *ops.Op) { op.T[2].Cols = 0 }),
		with("logits for other experts", func(op *ops.Op) { op.T[2].Cols = 2 }),
		with("gate_up of i32", func(op *ops.Op) { op.T[3].DType = ops.I32 }),
		with("gate_up without its padding", func(op *ops.Op) { op.T[3].Rows = 3 * 8 }),
		with("gate_up for a narrower x", func(op *ops.Op) { op.T[3].Cols-- }),
		with("down without its padding", func(op *ops.Op) { op.T[4].Rows = 3 * 10 }),
		with("down of another intermediate size", func(op *ops.Op) { op.T[4].Cols = 9 }),
		with("fewer rows of dst", func(op *ops.Op) { op.T[0].Rows-- }),
		with("x of bf16", func(op *ops.Op) { op.T[1].DType = ops.BF16 }),
	}
}

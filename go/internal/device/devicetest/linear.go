package devicetest

import (
	"math"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

type linearCase struct {
	m, n, k int
	dt      ops.DType
	bias    bool
}

// run returns x · wᵀ + bias for seeded operands.
func (c linearCase) run(r *rig) []float32 {
	x := random(uint64(c.k), c.m*c.k)
	for i := range x { // outputs of about one, whatever K
		x[i] /= float32(math.Sqrt(float64(c.k)))
	}
	if c.k > 1000 { // a value that stands far out of its row
		x[c.k/3] = 30
	}
	return c.times(r, r.weight(c.n, c.k, c.dt, random(uint64(c.n), c.n*c.k)), c.m, x)
}

// times multiplies m rows of x by w.

func (c linearCase) times(r *rig, w ops.Tensor, m int, x []float32) []float32 {
	var bias ops.Tensor
	if c.bias {
		bias = r.f32(1, c.n, random(7, c.n))
	}
	wide := r.poisoned(m, c.n+5, ops.F32)
	dst := wide.Columns(2, c.n)
	var l ops.List
	l.Linear(dst, r.strided(m, c.k, 1, 2, x), w, bias)
	r.run(&l)
	for i, f := range r.floats(wide) {
		if col := i % (c.n + 5); (col < 2 || col >= 2+c.n) && f == f {
			r.t.Fatalf("%+v: wrote outside of its output, column %d", c, col-2)
		}
	}
	return r.floats(dst)
}

func linearCases() []linearCase {
	var out []linearCase
	for _, dt := range weightTypes {
		if _, quantized := dt.Quant(); quantized {
			out = append(out, quantizedCases(dt)...)
		} else {
			out = append(out, floatCases(dt)...)
		}
	}
	return out
}

func floatCases(dt ops.DType) []linearCase {
	var out []linearCase
	for _, m := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 40} {
		out = append(out, linearCase{m, 150, 70, dt, m%2 == 0})
	}
	for _, nk := range [][2]int{{1, 1}, {16, 2}, {17, 3}, {15, 300}, {144, 577}, {300, 255}, {128, 1024}} {
		for _, m := range []int{1, 2, 5, 11, 29} {
			out = append(out, linearCase{m, nk[0], nk[1], dt, m != 2})
		}
	}
	return append(out, linearCase{200, 48, 1100, dt, true}, linearCase{1, 1500, 258, dt, false})
}

func quantizedCases(dt ops.DType) []linearCase {
	var out []linearCase
	for m := 1; m <= 14; m++ {
		out = append(out, linearCase{m, 70 + m, 32 * (1 + m%4), dt, m%2 == 0})
	}
	return append(out, linearCase{200, 48, 1120, dt, true}, linearCase{1, 1500, 256, dt, false}, linearCase{1, 16, 1088, dt, false})
}

func testLinear(t *testing.T, open Open, cases []linearCase) {
	for _, c := range cases {
		t.Run(name("%v/%d/%d/%d", c.dt, c.m, c.n, c.k), func(t *testing.T) {
			agree(t, open, 1e-5, c.run)
		})
	}
}

// Values may be of any size: rows times powers of two give outputs times these, to the bit.
func testLinearScale(t *testing.T, open Open, types []ops.DType) {
	for _, dt := range types {
		for _, m := range []int{3, 11, 40} {
			c := linearCase{m, 150, 320, dt, false}
			r := newRig(t, open)
			w := r.weight(c.n, c.k, dt, random(uint64(c.n), c.n*c.k))
			x := random(9, m*c.k)
			want := c.times(r, w, m, x)
			scale := func(i int) float32 { return float32(math.Ldexp(1, 40*(i%3-1))) }
			for i := range x {
				x[i] *= scale(i / c.k)
			}
			for i := range want {
				want[i] *= scale(i / c.n)
			}
			requireSame(t, name("%v, %d rows", dt, m), c.times(r, w, m, x), want)
		}
	}
}

// A row alone gives the bits that it gives among others.
func testLinearInvariance(t *testing.T, open Open, types []ops.DType) {
	for _, dt := range types {
		for _, nk := range [][2]int{{150, 71}, {272, 576}} {
			if _, quantized := dt.Quant(); quantized {
				nk[1] = (nk[1] + 31) / 32 * 32
			}
			c := linearCase{40, nk[0], nk[1], dt, true}
			r := newRig(t, open)
			w := r.weight(c.n, c.k, c.dt, random(uint64(c.n), c.n*c.k))
			x := random(9, c.m*c.k)
			for i := 3; i < c.m; i += 5 {
				x[i*c.k+40] = 1000
			}
			alone := make([]float32, 0, c.m*c.n)
			for i := range c.m {
				alone = append(alone, c.times(r, w, 1, x[i*c.k:(i+1)*c.k])...)
			}
			for m := 2; m <= c.m; m++ {
				requireSame(t, name("%v %v, %d rows", dt, nk, m), c.times(r, w, m, x[:m*c.k]), alone[:m*c.n])
			}
			const many = 7 // 280 rows: more than one group of blocks
			var long, want []float32
			for range many {
				long, want = append(long, x...), append(want, alone...)
			}
			requireSame(t, name("%v %v, %d rows", dt, nk, many*c.m), c.times(r, w, many*c.m, long), want)
		}
	}
}

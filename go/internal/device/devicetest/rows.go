package devicetest

import (
	"math"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
)

func testEmbed(t *testing.T, open Open, types []ops.DType) {
	for _, dt := range types {
		_, quantized := dt.Quant()
		for _, h := range []int{1, 7, 16, 64, 129, 160} {
			if quantized && h%32 != 0 {
				continue
			}
			t.Run(name("%v/%d", dt, h), func(t *testing.T) {
				agree(t, open, 0, func(r *rig) []float32 {
					const vocab = 37 // not a multiple of 16
					ids, last := r.i32(0, 36, 15, 16, -1, -3, 5), r.i32(7, 8, 31)
					dst := r.poisoned(7, h, ops.F32)
					var l ops.List
					table := r.weight(vocab, h, dt, random(1, vocab*h))
					l.Embed(dst, table, ids, last, 0)
					scaled := r.poisoned(7, h, ops.F32)
					l.Embed(scaled, table, ids, last, 33.75)
					r.run(&l)
					return append(r.floats(dst), r.floats(scaled)...)
				})
			})
		}
	}
}

// A weight whose rows are bfloat16 already is the one that is rounded to it.
func testLoadBF16(t *testing.T, open Open) {
	const rows, cols = 37, 71
	x := random(5, rows*cols)
	r := newRig(t, open)
	given, err := r.d.Load(device.Weight{Rows: rows, Cols: cols, DType: ops.BF16, BF16: func(dst []uint16, i int) {
		for c := range dst { // halves away from zero: x has none
			dst[c] = uint16((math.Float32bits(x[i*cols+c]) + 0x8000) >> 16)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i)
	}
	embed := func(table ops.Tensor) []float32 {
		dst := r.poisoned(rows, cols, ops.F32)
		var l ops.List
		l.Embed(dst, table, r.i32(ids...), ops.Tensor{}, 0)
		r.run(&l)
		return r.floats(dst)
	}
	requireSame(t, "given as bfloat16", embed(given), embed(r.weight(rows, cols, ops.BF16, x)))
}

func normScenario(r *rig, m, h int, residual bool) []float32 {
	x, w := r.strided(m, h, 3, 2, random(1, m*h)), r.f32(1, h, random(2, h))
	var res ops.Tensor
	if residual {
		res = r.f32(m, h, random(3, m*h))
	}
	dst := r.poisoned(m, h, ops.F32)
	var l ops.List
	l.RMSNorm(dst, x, w, res, 1e-5)
	l.RMSNorm(x, x, w, ops.Tensor{}, 1e-6) // in place
	r.run(&l)
	out := append(r.floats(dst), r.floats(x)...)
	if residual {
		out = append(out, r.floats(res)...)
	}
	return out
}

func testRMSNorm(t *testing.T, open Open) {
	for _, h := range []int{1, 5, 15, 16, 17, 64, 576, 1031} {
		for _, m := range []int{1, 3, 40} {
			for _, residual := range []bool{false, true} {
				t.Run(name("%d/%d/%v", h, m, residual), func(t *testing.T) {
					agree(t, open, 2e-6, func(r *rig) []float32 { return normScenario(r, m, h, residual) })
				})
			}
		}
	}
	t.Run("invariance", func(t *testing.T) {
		const m, h = 40, 129
		x, w := random(1, m*h), random(2, h)
		r := newRig(t, open)
		norm := func(rows int, x []float32) []float32 {
			dst := r.poisoned(rows, h, ops.F32)
			var l ops.List
			l.RMSNorm(dst, r.f32(rows, h, x), r.f32(1, h, w), ops.Tensor{}, 1e-5)
			r.run(&l)
			return r.floats(dst)
		}
		all := norm(m, x)
		for i := range m {
			requireSame(t, name("row %d", i), norm(1, x[i*h:(i+1)*h]), all[i*h:(i+1)*h])
		}
	})
}

func gateScenario(r *rig, m, f int, a ops.Activation) []float32 {
	x := random(1, m*2*f)
	for i := range x {
		x[i] *= 8
	}
	copy(x, []float32{0, 90, -90, 200, -200})
	dst := r.poisoned(m, f, ops.F32)
	var l ops.List
	l.ActMul(dst, r.strided(m, 2*f, 0, 5, x), a)
	r.run(&l)
	return r.floats(dst)
}

func testActMul(t *testing.T, open Open) {
	for _, f := range []int{5, 8, 16, 31, 333, 1536} {
		for _, m := range []int{1, 7} {
			for _, a := range []ops.Activation{ops.SiLU, ops.GELUTanh} {
				t.Run(name("%d/%d/%d", f, m, a), func(t *testing.T) {
					agree(t, open, 1e-6, func(r *rig) []float32 { return gateScenario(r, m, f, a) })
				})
			}
		}
	}
}

func testGatherRows(t *testing.T, open Open) {
	agree(t, open, 0, func(r *rig) []float32 {
		x := r.strided(6, 21, 1, 4, random(1, 6*21))
		dst := r.poisoned(4, 21, ops.F32)
		var l ops.List
		l.GatherRows(dst, x, r.i32(5, 0, 0, 3))
		r.run(&l)
		return r.floats(dst)
	})
}

func testMemory(t *testing.T, open Open) {
	r := newRig(t, open)
	a := r.alloc(3, 5, ops.F32)
	if a.Addr%64 != 0 {
		t.Errorf("address %#x is not aligned to 64 bytes", uint64(a.Addr))
	}
	for i, f := range r.floats(a) {
		if f != 0 {
			t.Fatalf("fresh memory holds %v at %d", f, i)
		}
	}
	x := random(1, 15)
	r.write(a, floatBytes(x))
	requireSame(t, "round trip", r.floats(a), x)
	requireSame(t, "part", r.floats(a.Columns(2, 3)), []float32{x[2], x[3], x[4], x[7], x[8], x[9], x[12], x[13], x[14]})

	for _, c := range []struct {
		what string
		addr ops.Addr
		n    int
	}{{"no address", 0, 4}, {"behind the end", a.Addr, 64}, {"before the start", a.Addr - 4, 4}, {"stray", 12345, 4}, {"far", math.MaxUint64 - 8, 4}} {
		if r.d.Write(c.addr, make([]byte, c.n)) == nil || r.d.Read(make([]byte, c.n), c.addr) == nil {
			t.Errorf("%s: no error", c.what)
		}
	}
	if _, err := r.d.Alloc(-1); err == nil {
		t.Error("alloc of -1 bytes: no error")
	}
	if _, err := r.d.Alloc(math.MaxInt64); err == nil {
		t.Error("alloc of all memory: no error")
	}
	for _, c := range []struct {
		rows, cols int
		dt         ops.DType
	}{{0, 4, ops.F32}, {4, -1, ops.F32}, {4, 4, ops.I32}, {4, 4, 99}, {4, 33, ops.Q8}, {math.MaxInt, math.MaxInt, ops.F32}} {
		w := device.Weight{Rows: c.rows, Cols: c.cols, DType: c.dt, Floats: func([]float32, int) {}, Quant: func(device.QuantRow, int) {}}
		if _, err := r.d.Load(w); err == nil {
			t.Errorf("load %+v: no error", c)
		}
	}
}

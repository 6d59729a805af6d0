package devicetest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/minisgl/minisgl/go/internal/ops"
)

// attentionCase is a set of requests, each a sequence of random qkv rows that
// depend on the request and the position only.
type attentionCase struct {
	h      ops.Heads
	page   int
	window int
	dt     ops.DType
	norm   bool
	lens   []int
}

// chunk is the next n rows of a request.
type chunk struct{ request, n int }

func attentionCases() []attentionCase {
	heads := func(q, kv, d int) ops.Heads { return ops.Heads{Q: q, KV: kv, Dim: d} }
	return []attentionCase{
		{heads(9, 3, 64), 16, 0, ops.BF16, false, []int{40, 1, 33, 17}},
		{heads(4, 4, 16), 1, 0, ops.F32, false, []int{70, 31, 32}},
		{heads(8, 1, 32), 3, 0, ops.BF16, true, []int{65, 2}},
		{heads(4, 1, 80), 64, 0, ops.F32, true, []int{100}},
		{heads(2, 1, 128), 16, 0, ops.BF16, true, []int{37, 64}},
		{heads(3, 3, 8), 5, 0, ops.BF16, false, []int{50}},
		{heads(6, 2, 96), 16, 0, ops.BF16, false, []int{34}},
		{heads(2, 1, 256), 16, 0, ops.F32, true, []int{33}},
		{heads(4, 2, 40), 16, 0, ops.F32, false, []int{35}},
		{heads(4, 2, 32), 16, 20, ops.BF16, false, []int{90, 20}},
		{heads(4, 2, 32), 4, 1, ops.F32, false, []int{40}},
		{heads(4, 2, 16), 16, 0, ops.BF16, false, []int{600, 257}},
		{heads(2, 1, 16), 16, 270, ops.F32, false, []int{700}},
		{heads(9, 3, 64), 16, 0, ops.F16, false, []int{40, 1, 33}},
		{heads(8, 1, 40), 3, 30, ops.F16, true, []int{300, 2}},
		{heads(9, 3, 64), 1, 0, ops.I8, false, []int{40, 1, 33}},
		{heads(14, 2, 128), 16, 0, ops.I8, true, []int{290}},
		{heads(4, 2, 24), 5, 30, ops.I8, false, []int{70, 35}},
		{heads(4, 2, 128), 256, 0, ops.BF16, false, []int{300, 1}},
		{heads(40, 1, 64), 16, 0, ops.BF16, false, []int{20, 3}},
		{heads(20, 1, 24), 3, 0, ops.I8, false, []int{40}},
		{heads(4, 1, 256), 16, 0, ops.F16, true, []int{35, 64}},
	}
}

// float8Cases are for devices that have caches of e4m3.
func float8Cases() []attentionCase {
	return []attentionCase{
		{ops.Heads{Q: 9, KV: 3, Dim: 64}, 1, 0, ops.F8, false, []int{40, 1, 33}},
		{ops.Heads{Q: 4, KV: 2, Dim: 128}, 16, 0, ops.F8, false, []int{290, 17}},
		{ops.Heads{Q: 4, KV: 1, Dim: 24}, 5, 30, ops.F8, false, []int{70}},
	}
}

// Float8 runs what the suite leaves out, since the CPU has no caches and no weights of e4m3.
func Float8(t *testing.T, open Open) {
	t.Run("embed", func(t *testing.T) { testEmbed(t, open, []ops.DType{ops.F8}) })
	t.Run("linear", func(t *testing.T) { testLinear(t, open, floatCases(ops.F8)) })
	t.Run("linear_scale", func(t *testing.T) { testLinearScale(t, open, []ops.DType{ops.F8}) })
	t.Run("linear_invariance", func(t *testing.T) { testLinearInvariance(t, open, []ops.DType{ops.F8}) })
	t.Run("moe", func(t *testing.T) {
		testMoECases(t, open, []moeCase{{4, 3, 48, 5, false, ops.F8}, {3, 2, 300, 150, true, ops.F8}})
	})
	t.Run("attention", func(t *testing.T) { testAttention(t, open, float8Cases()) })
	t.Run("attention_invariance", func(t *testing.T) { testAttentionInvariance(t, open, float8Cases()) })
}

// flashInferCases are of caches and heads that FlashInfer is compiled for.
func flashInferCases() []attentionCase {
	heads := func(q, kv, d int) ops.Heads { return ops.Heads{Q: q, KV: kv, Dim: d} }
	return []attentionCase{
		{heads(9, 3, 64), 16, 0, ops.BF16, false, []int{40, 1, 33, 17}},
		{heads(4, 2, 128), 256, 0, ops.BF16, false, []int{300, 1}},
		{heads(5, 1, 128), 1, 0, ops.F16, true, []int{140, 64}},
		{heads(40, 1, 64), 16, 0, ops.BF16, false, []int{20, 3}},
		{heads(4, 1, 256), 3, 0, ops.F16, true, []int{35, 64}},
		{heads(4, 2, 64), 16, 20, ops.BF16, false, []int{90, 20}},
		{heads(2, 2, 128), 16, 150, ops.F16, false, []int{400, 1}},
		{heads(4, 1, 64), 4, 1, ops.BF16, false, []int{40}},
	}
}

// FlashInfer runs the suite for attention on a device that leaves it to FlashInfer.
func FlashInfer(t *testing.T, open Open) {
	t.Run("attention", func(t *testing.T) { testAttention(t, open, flashInferCases()) })
	t.Run("attention_invariance", func(t *testing.T) { testAttentionInvariance(t, open, flashInferCases()) })
	t.Run("errors", func(t *testing.T) {
		bad := badAttentionOps(ops.Heads{Q: 2, KV: 1, Dim: 64}, ops.BF16)
		for _, c := range []struct {
			what string
			d    int
			dt   ops.DType
		}{{"cache of f32", 64, ops.F32}, {"heads of 48", 48, ops.BF16}} {
			bad = append(bad, badOp{"attention, " + c.what, func(r *rig) ops.Op {
				return attentionOp(r, ops.Heads{Q: 2, KV: 1, Dim: c.d}, c.dt, []int32{1}, []int32{0, 2}, []int32{4})
			}})
		}
		testBadOps(t, open, bad)
	})
}

// The rotation is four products, a difference and a sum, each rounded to float32:
// a device that fuses them gives other bits.
func testRope(t *testing.T, open Open) {
	for _, d := range []int{8, 24, 64, 80, 128} {
		t.Run(name("%d", d), func(t *testing.T) {
			agree(t, open, 0, func(r *rig) []float32 { return ropeScenario(r, d, false) })
		})
		t.Run(name("%d/norm", d), func(t *testing.T) {
			agree(t, open, 2e-6, func(r *rig) []float32 { return ropeScenario(r, d, true) })
		})
	}
}

// ropeScenario returns the queries that RopeStore prepared.
func ropeScenario(r *rig, d int, norm bool) []float32 {
	const m = 9
	h := ops.Heads{Q: 3, KV: 1, Dim: d}
	width := (h.Q + 2*h.KV) * d
	var qNorm, kNorm ops.Tensor
	if norm {
		qNorm, kNorm = r.f32(1, d, random(2, d)), r.f32(1, d, random(3, d))
	}
	qkv := r.strided(m, width, 0, 7, random(1, m*width))
	rope := ops.Rope{
		Positions: r.i32(0, 1, 2, 3, 50, 51, 99, 7, 0), Slots: r.i32(8, 7, 6, 5, 4, 3, 2, 1, 0),
		Table: r.f32(100, d, ropeTable(100, d)), PageSize: 3,
	}
	var l ops.List
	l.RopeStore(qkv, rope, r.poisoned(m, d, ops.F32), r.poisoned(m, d, ops.F32), qNorm, kNorm, h, 1e-6)
	r.run(&l)
	return r.floats(qkv.Columns(0, h.Q*d))
}

func testAttention(t *testing.T, open Open, cases []attentionCase) {
	for _, c := range cases {
		t.Run(name("%+v", c), func(t *testing.T) {
			// A cache rounds what two devices computed differently.
			tolerance := map[ops.DType]float64{ops.F32: 2e-5, ops.BF16: 2e-2, ops.F16: 2e-3, ops.I8: 2e-2, ops.F8: 2e-2}[c.dt]
			got, want := c.run(newRig(t, open), c.whole()), c.run(newRef(t), c.whole())
			for i := range want {
				requireClose(t, got[i], want[i], tolerance)
			}
		})
	}
}

// However a prompt is cut and whatever runs beside it, the bits are the same.
func testAttentionInvariance(t *testing.T, open Open, cases []attentionCase) {
	for _, c := range cases {
		t.Run(name("%+v", c), func(t *testing.T) {
			want := c.run(newRig(t, open), c.whole())
			check := func(what string, c attentionCase, schedule [][]chunk) {
				got := c.run(newRig(t, open), schedule)
				for i := range want {
					requireSame(t, name("%s, request %d", what, i), got[i], want[i])
				}
			}
			check("alone", c, c.alone())
			check("chunks of 7", c, c.chunked(7))
			check("chunks of 32", c, c.chunked(32))
			check("chunks of 129", c, c.chunked(129))
			check("token by token", c, c.chunked(1))
			for _, schedule := range [][][]chunk{c.whole(), c.chunked(1)} {
				a := c.start(newRig(t, open))
				a.inPlace = true
				for i, got := range a.steps(schedule) {
					requireSame(t, name("in the queries' place, %d batches, request %d", len(schedule), i), got, want[i])
				}
			}
			for _, page := range []int{1, 3, 16, 64} {
				other := c
				other.page = page
				check(name("page size %d", page), other, other.chunked(50))
			}
		})
	}
}

// whole is one batch of all prompts.
func (c attentionCase) whole() [][]chunk {
	var batch []chunk
	for i, n := range c.lens {
		batch = append(batch, chunk{i, n})
	}
	return [][]chunk{batch}
}

// alone is a batch for each request.
func (c attentionCase) alone() [][]chunk {
	var out [][]chunk
	for i, n := range c.lens {
		out = append(out, []chunk{{i, n}})
	}
	return out
}

// chunked gives every request n rows a batch until it is done.
func (c attentionCase) chunked(n int) [][]chunk {
	var out [][]chunk
	for done := 0; ; done += n {
		var batch []chunk
		for i, total := range c.lens {
			if left := min(n, total-done); left > 0 {
				batch = append(batch, chunk{i, left})
			}
		}
		if batch == nil {
			return out
		}
		out = append(out, batch)
	}
}

// attentionRun is a case on a device.
type attentionRun struct {
	attentionCase
	r            *rig
	k, v, table  ops.Tensor
	qNorm, kNorm ops.Tensor
	pages        [][]int32   // of each request
	qkv          [][]float32 // rows of each request
	done         []int
	inPlace      bool // the output takes the place of the queries
	out          [][]float32
}

// run runs the batches and returns the output rows of each request.
func (c attentionCase) run(r *rig, schedule [][]chunk) [][]float32 {
	return c.start(r).steps(schedule)
}

func (a *attentionRun) steps(schedule [][]chunk) [][]float32 {
	for _, batch := range schedule {
		a.step(batch)
	}
	return a.out
}

func (c attentionCase) start(r *rig) *attentionRun {
	a := &attentionRun{attentionCase: c, r: r, done: make([]int, len(c.lens)), out: make([][]float32, len(c.lens))}
	total, longest := 0, 0
	for i, n := range c.lens {
		a.qkv = append(a.qkv, random(uint64(i+1), n*c.width()))
		total += (n + c.page - 1) / c.page
		longest = max(longest, n)
	}
	free := rand.New(rand.NewPCG(5, 5)).Perm(total + 3)
	for _, n := range c.lens {
		var list []int32
		for range (n + c.page - 1) / c.page {
			list = append(list, int32(free[0]))
			free = free[1:]
		}
		a.pages = append(a.pages, list)
	}
	cols := ops.CacheCols(c.dt, c.h.KV, c.h.Dim)
	a.k = r.poisoned((total+3)*c.page, cols, c.dt)
	a.v = r.poisoned((total+3)*c.page, cols, c.dt)
	a.table = r.f32(longest, c.h.Dim, ropeTable(longest, c.h.Dim))
	if c.norm {
		a.qNorm, a.kNorm = r.f32(1, c.h.Dim, random(11, c.h.Dim)), r.f32(1, c.h.Dim, random(12, c.h.Dim))
	}
	return a
}

func (c attentionCase) width() int { return (c.h.Q + 2*c.h.KV) * c.h.Dim }

func ropeTable(positions, d int) []float32 {
	out := make([]float32, positions*d)
	for p := range positions {
		for i := range d / 2 {
			angle := float64(p) * math.Pow(1e4, -2*float64(i)/float64(d))
			out[p*d+i], out[p*d+d/2+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return out
}

func (a *attentionRun) step(batch []chunk) {
	r, h := a.r, a.h
	var rows []float32
	var positions, slots, lens, table []int32
	cu := []int32{0}
	width := 1
	for _, c := range batch {
		width = max(width, len(a.pages[c.request]))
	}
	for _, c := range batch {
		from := a.done[c.request]
		rows = append(rows, a.qkv[c.request][from*a.width():(from+c.n)*a.width()]...)
		list := a.pages[c.request]
		for p := from; p < from+c.n; p++ {
			positions = append(positions, int32(p))
			slots = append(slots, list[p/a.page]*int32(a.page)+int32(p%a.page))
		}
		a.done[c.request] += c.n
		cu, lens = append(cu, int32(len(positions))), append(lens, int32(from+c.n))
		table = append(table, list...)
		for range width - len(list) {
			table = append(table, -1)
		}
	}
	m := len(positions)
	qkv := r.f32(m, a.width(), rows)
	q := qkv.Columns(0, h.Q*h.Dim)
	dst := q
	if !a.inPlace {
		dst = r.poisoned(m, h.Q*h.Dim, ops.F32)
	}
	pages := r.i32(table...)
	pages.Rows, pages.Cols, pages.Stride = int32(len(batch)), int32(width), int32(width)
	var l ops.List
	l.RopeStore(qkv, ops.Rope{Positions: r.i32(positions...), Slots: r.i32(slots...), Table: a.table, PageSize: a.page},
		a.k, a.v, a.qNorm, a.kNorm, h, 1e-6)
	l.Attention(dst, q, ops.Paged{Table: pages, CuQLens: r.i32(cu...), KVLens: r.i32(lens...), PageSize: a.page},
		a.k, a.v, h, float32(1/math.Sqrt(float64(h.Dim))), a.window)
	r.run(&l)
	got := r.floats(dst)
	for i, c := range batch {
		a.out[c.request] = append(a.out[c.request], got[int(cu[i])*h.Q*h.Dim:int(cu[i+1])*h.Q*h.Dim]...)
	}
}

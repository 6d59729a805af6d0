package ref

import (
	"math"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// Known-answer vectors of the Random123 distribution, philox4x32 with 10 rounds.
func TestPhilox(t *testing.T) {
	const ones = math.MaxUint32
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
}

func TestToBF16(t *testing.T) {
	for _, c := range []struct {
		in   uint32
		want uint16
	}{
		{0x3f800000, 0x3f80},
		{0x3f808000, 0x3f80}, // a tie, to even
		{0x3f818000, 0x3f82}, // a tie, to even
		{0x3f808001, 0x3f81},
		{0x7f7fffff, 0x7f80}, // rounds to infinity
		{0x7f800000, 0x7f80},
		{0x80000000, 0x8000},
		{0x7f800001, 0x7fc0}, // a NaN stays one
	} {
		if got := toBF16(math.Float32frombits(c.in)); got != c.want {
			t.Errorf("toBF16(%#08x) = %#04x, want %#04x", c.in, got, c.want)
		}
	}
}

// Values worked out by hand: the oracle needs an oracle.
func TestKnownValues(t *testing.T) {
	d := New()
	put := func(rows, cols int, x ...float32) ops.Tensor {
		a, err := d.Alloc(int64(4 * rows * cols))
		if err != nil {
			t.Fatal(err)
		}
		v := ops.New(a, rows, cols, ops.F32)
		for r := range rows {
			d.mem.view(v).setRow(r, x[r*cols:(r+1)*cols])
		}
		return v
	}
	w, err := d.Load(device.Weight{Rows: 2, Cols: 3, DType: ops.F32, Floats: func(dst []float32, r int) { copy(dst, []float32{float32(r), 1, 2}) }})
	if err != nil {
		t.Fatal(err)
	}
	x, norm, silu := put(1, 3, 1, 2, 3), put(1, 2, 3, 4), put(1, 2, 0, 5)
	linear, normed, gated := put(1, 2, 0, 0), put(1, 2, 0, 0), put(1, 1, 9)
	var l ops.List
	l.Linear(linear, x, w, put(1, 2, 10, 20))
	l.RMSNorm(normed, norm, put(1, 2, 1, 2), ops.Tensor{}, 0)
	l.ActMul(gated, silu, ops.SiLU)
	if err := d.Submit(&l); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(); err != nil {
		t.Fatal(err)
	}
	rms := math.Sqrt(12.5)
	for _, c := range []struct {
		what string
		got  float32
		want float64
	}{
		{"linear 0", d.mem.view(linear).row(0)[0], 18},
		{"linear 1", d.mem.view(linear).row(0)[1], 29},
		{"norm 0", d.mem.view(normed).row(0)[0], 3 / rms},
		{"norm 1", d.mem.view(normed).row(0)[1], 8 / rms},
		{"silu(0)", d.mem.view(gated).row(0)[0], 0},
	} {
		if math.Abs(float64(c.got)-c.want) > 1e-6 {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
}

package numpyrand

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func draw(t *testing.T, n *Numpy, low, high, count int) []int {
	t.Helper()
	got, err := n.RandInt(low, high, count)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Right values are numpy 2.4.6's: np.random.seed, randint, exponential(1/8), random_sample.
func TestNumpy(t *testing.T) {
	tests := []struct {
		seed        uint32
		ints        []int // randint(1, 1025), 5 of them; randint(0, 49152), 4; randint(7, 8), 2; randint(0, 2**32-1), 2
		exponential [3]float64
		sample      float64
	}{
		{0, []int{685, 560, 630, 193, 836, 21243, 30403, 32103, 41993, 7, 7, 2678185683, 2774094101},
			[3]float64{0x1.f0c56fdc3d716p-5, 0x1.69a28cc30b4cdp-5, 0x1.de498772e8395p-8}, 0x1.17333631149c8p-2},
		{42, []int{103, 436, 861, 271, 107, 44732, 11284, 6265, 16850, 7, 7, 429389014, 249467210},
			[3]float64{0x1.3ac6901d775d9p-4, 0x1.9fc5da22591cep-5, 0x1.3bb9450472797p-6}, 0x1.4d4141015141ap-1},
		{math.MaxUint32, []int{420, 291, 13, 72, 949, 20694, 506, 45529, 32544, 7, 7, 4163996287, 2166321787},
			[3]float64{0x1.cc7a9ed8fed92p-4, 0x1.4381340fa2e99p-6, 0x1.3354d1a70d258p-2}, 0x1.1b835369cb7f1p-1},
	}
	for _, tt := range tests {
		n := NewNumpy(tt.seed)
		ints := slices.Concat(draw(t, n, 1, 1025, 5), draw(t, n, 0, 49152, 4), draw(t, n, 7, 8, 2), draw(t, n, 0, math.MaxUint32, 2))
		if diff := cmp.Diff(tt.ints, ints); diff != "" {
			t.Errorf("seed %d, randint (-want +got):\n%s", tt.seed, diff)
		}
		for i, want := range tt.exponential {
			// The logarithms of two libraries may differ in the last bit.
			if got := n.Exponential(1 / 8.0); math.Abs(got-want) > 1e-15*want {
				t.Errorf("seed %d, exponential %d: %x, want %x", tt.seed, i, got, want)
			}
		}
		if got := n.Float64(); got != tt.sample {
			t.Errorf("seed %d: random_sample %x, want %x", tt.seed, got, tt.sample)
		}
	}
}

// More draws than the state has words.
func TestNumpyLong(t *testing.T) {
	got := draw(t, NewNumpy(1), 0, 1000, 2000)
	sum := 0
	for _, v := range got {
		sum += v
	}
	if sum != 1000744 || !slices.Equal(got[1997:], []int{616, 288, 208}) {
		t.Errorf("sum %d, end %v", sum, got[1997:])
	}
}

func TestRandIntRejects(t *testing.T) {
	for _, r := range [][2]int{{5, 5}, {6, 5}, {0, math.MaxUint32 + 1}, {math.MinInt, math.MaxInt}} {
		if _, err := NewNumpy(0).RandInt(r[0], r[1], 1); err == nil {
			t.Errorf("range %v: no error", r)
		}
	}
}

// Right values are CPython 3.11's: random.seed, shuffle, choices, random, randrange(2**31).
func TestPython(t *testing.T) {
	tests := []struct {
		seed     uint64
		shuffled []int
		choices  []int
		random   float64
		below    int
	}{
		{0, []int{1, 9, 8, 5, 10, 2, 3, 7, 4, 0, 11, 6}, []int{504, 281, 755, 618}, 0x1.0084bbfe5e826p-2, 631194409},
		{42, []int{7, 5, 2, 8, 9, 6, 11, 3, 4, 0, 1, 10}, []int{31, 93, 232, 602}, 0x1.1f5b834cb9c18p-1, 1801823908},
		{1<<40 + 7, []int{0, 5, 2, 3, 6, 1, 8, 4, 7, 11, 10, 9}, []int{393, 449, 896, 225}, 0x1.c9decb9c75c3ap-1, 772300453},
	}
	for _, tt := range tests {
		p := NewPython(tt.seed)
		list := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
		Shuffle(p, list)
		if diff := cmp.Diff(tt.shuffled, list); diff != "" {
			t.Errorf("seed %d, shuffle (-want +got):\n%s", tt.seed, diff)
		}
		if diff := cmp.Diff(tt.choices, p.Choices(1000, 4)); diff != "" {
			t.Errorf("seed %d, choices (-want +got):\n%s", tt.seed, diff)
		}
		if got := p.Float64(); got != tt.random {
			t.Errorf("seed %d: random %x, want %x", tt.seed, got, tt.random)
		}
		if got := p.Below(1 << 31); got != tt.below {
			t.Errorf("seed %d: randrange %d, want %d", tt.seed, got, tt.below)
		}
	}
}

package ngram

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGuess(t *testing.T) {
	for name, test := range map[string]struct {
		ids  []int32
		n    int
		want []int32
	}{
		"empty":                   {nil, 3, nil},
		"one token":               {[]int32{7}, 3, nil},
		"nothing twice":           {[]int32{1, 2, 3, 4}, 3, nil},
		"one token is no match":   {[]int32{1, 2, 3, 9, 1}, 3, nil},
		"two tokens are":          {[]int32{1, 2, 3, 4, 9, 1, 2}, 2, []int32{3, 4}},
		"equals that disagree":    {[]int32{1, 2, 3, 1, 2, 4, 9, 1, 2}, 1, nil},
		"as far as they agree":    {[]int32{1, 2, 3, 4, 9, 1, 2, 3, 5, 7, 1, 2}, 3, []int32{3}},
		"the latest two of three": {[]int32{1, 2, 5, 1, 2, 3, 1, 2, 3, 9, 1, 2}, 1, []int32{3}},
		"the longest before it":   {[]int32{5, 1, 2, 3, 6, 1, 2, 4, 9, 5, 1, 2}, 1, []int32{3}},
		"runs on into the guess":  {[]int32{9, 1, 2, 3, 1, 2}, 7, []int32{3, 1, 2, 3, 1, 2, 3}},
		"one token over and over": {[]int32{8, 8, 8}, 4, []int32{8, 8, 8, 8}},
		"none wanted":             {[]int32{8, 8, 8}, 0, nil},
	} {
		x := New(len(test.ids))
		x.Extend(test.ids)
		if diff := cmp.Diff(test.want, x.Guess(nil, test.ids, test.n)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestGuessAppends: what dst holds stays, and is no part of the guess.
func TestGuessAppends(t *testing.T) {
	ids := []int32{1, 2, 1, 2}
	x := New(8)
	x.Extend(ids)
	if diff := cmp.Diff([]int32{5, 1, 2, 1}, x.Guess([]int32{5}, ids, 3)); diff != "" {
		t.Error(diff)
	}
}

// TestSearch compares with a search through the whole sequence, which grows by
// one or by several tokens. Few enough places are equal for the bound on
// comparisons not to matter.
func TestSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var ids []int32
		x := New(1 + rng.IntN(40)) // too small: hashes collide
		for len(ids) < 200 {
			if len(ids) > 20 && rng.IntN(8) == 0 {
				from := rng.IntN(len(ids) - 10)
				ids = append(ids, ids[from:from+10]...)
			}
			for range 1 + rng.IntN(3) {
				ids = append(ids, rng.Int32N(40))
			}
			x.Extend(ids)
			if diff := cmp.Diff(slowGuess(ids), x.Guess(nil, ids, 1)); diff != "" {
				t.Fatalf("after %v: %s", ids, diff)
			}
		}
	}
}

func slowGuess(ids []int32) []int32 {
	var length, next []int32 // of the matches, the longest first, of equals the latest; and what follows them
	for n := min(MaxMatch, len(ids)-1); n >= MinMatch; n-- {
		for at := len(ids) - 1; at >= n; at-- {
			longer := n < MaxMatch && at > n && ids[at-n-1] == ids[len(ids)-n-1]
			if !longer && slices.Equal(ids[at-n:at], ids[len(ids)-n:]) {
				length, next = append(length, int32(n)), append(next, ids[at])
			}
		}
	}
	if len(next) == 0 || len(next) > 1 && 4*length[1] >= 3*length[0] && next[1] != next[0] {
		return nil
	}
	return next[:1]
}

// TestWindow: a sequence longer than the window takes no more memory, what is out
// of it is not found, and what is in it is.
func TestWindow(t *testing.T) {
	ids := make([]int32, 0, 2*Window+6)
	ids = append(ids, -1, -2, -3)
	for i := range 2 * Window {
		ids = append(ids, int32(i))
	}
	x := New(cap(ids))
	x.Extend(ids)
	if len(x.prev) != Window || len(x.heads) > Window {
		t.Errorf("%d places and %d heads are kept, more than the window, %d", len(x.prev), len(x.heads), Window)
	}
	if got := x.Guess(nil, append(ids, -1, -2), 1); got != nil {
		t.Errorf("found %v, which is out of the window", got)
	}
	if diff := cmp.Diff([]int32{2*Window - 5}, x.Guess(nil, append(ids, 2*Window-7, 2*Window-6), 1)); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkExtend takes in a text of 8192 tokens and guesses after each.
func BenchmarkExtend(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, 8192)
	for i := range ids {
		ids[i] = int32(rng.ExpFloat64() * 300)
	}
	guess := make([]int32, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		x := New(len(ids))
		for n := range ids {
			x.Extend(ids[:n])
			guess = x.Guess(guess[:0], ids[:n], 8)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ids)), "ns/token")
}

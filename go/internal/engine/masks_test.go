package engine

import (
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
)

// allows is a grammar that allows one token at each position.
type allows int32

func (a allows) Mask(dst, _ []int32) error {
	clear(dst)
	dst[a/32] = int32(uint32(1) << (a % 32))
	return nil
}

func (allows) Forced([]int32) (int32, bool) { return 0, false }

func (allows) Close() {}

// TestMaskOfAKnownToken: where a token has become known while a batch that samples it
// is in flight, the mask allows that one; the grammar is not asked, which knows only of
// what follows the known ones.
func TestMaskOfAKnownToken(t *testing.T) {
	r := &core.Req{IDs: []int32{9, 9, 63}, PromptLen: 2, Matcher: allows(40)}
	m := masks{vocab: 70}
	m.add(r, 2, 0)
	m.add(r, 3, 1)
	m.compute()
	want := []int32{0, -1 << 31, 0, 0, 1 << 8, 0}
	for i, word := range want {
		if m.bits.host[i] != word {
			t.Errorf("word %d is %#x, want %#x", i, m.bits.host[i], word)
		}
	}
}

package scheduler

import (
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache/naive"
)

// counting is a grammar in which a token above 100 is followed by the number below
// it, down to the next hundred: 203 forces 202, 201 and 200. What 100 forces is the
// end, which is token 0.
type counting struct{}

// Mask implements core.Matcher; the scheduler has no use for masks.
func (counting) Mask(_, _ []int32) error { panic("the scheduler asked for a mask") }

// Forced implements core.Matcher.
func (counting) Forced(output []int32) (token int32, ok bool) {
	switch last := output[len(output)-1]; {
	case last == 100:
		return 0, true
	case last > 100 && last%100 != 0:
		return last - 1, true
	}
	return 0, false
}

// Close implements core.Matcher.
func (counting) Close() {}

// TestJumpIsBounded: of 99 forced tokens the first 64 come with the one before them,
// and the others with the next that is sampled.
func TestJumpIsBounded(t *testing.T) {
	s := New(Config{PageSize: 4, NumPages: 100, MaxRunning: 1, MaxExtendTokens: 100, MaxSeqLen: 200, JumpForward: true}, naive.New())
	r := &core.Req{UID: 1, Params: core.DefaultSampling(), IDs: []int32{5, 5}, PromptLen: 2, Matcher: counting{}}
	if err := s.Add(r); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1 + 64, 1 + 34, 1} {
		b := s.Next()
		token := []int32{299, 234, 7}[i]
		if at := b.Seqs[0].End; at != len(r.IDs) {
			t.Fatalf("batch %d ends at position %d of %d", i, at, len(r.IDs))
		}
		if outs := s.Complete(b, []int32{token}); len(outs) != want || outs[0].Token != token {
			t.Errorf("batch %d gave %d tokens, want %d", i, len(outs), want)
		}
	}
}

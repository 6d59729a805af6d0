package llm_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/minisgl/minisgl/go/llm"
)

// TestForwardHookCountsPrefill is the documents' count: 16 requests share 400
// tokens and bring 16 of their own; the first one fills the cache. Without
// sharing 16·416 prompt tokens are computed, with the radix cache 416 + 15·16.
func TestForwardHookCountsPrefill(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(rng.IntN(250))
		}
		return ids
	}
	shared := draw(400)
	p := llm.DefaultSampling()
	p.MaxTokens, p.IgnoreEOS = 8, true
	var reqs []llm.Request
	for range 16 {
		reqs = append(reqs, llm.Request{TokenIDs: append(append([]int32(nil), shared...), draw(16)...), Params: p})
	}
	for cache, want := range map[string]int{"naive": 6656, "radix": 656} {
		l := open(t, llm.Config{Model: tinyModel, CacheType: cache, MaxRunningReq: 16, NumPageOverride: 16384, MaxSeqLenOverride: 512})
		computed := 0
		err := l.SetForwardHook(func(b llm.BatchInfo, forward func() error) error {
			if b.Prefill {
				computed += len(b.Positions)
			}
			return forward()
		})
		if err != nil {
			t.Fatal(err)
		}
		first := reqs[0]
		first.Params.MaxTokens = 1
		tokens(t, l, []llm.Request{first})
		tokens(t, l, reqs[1:])
		if computed != want {
			t.Errorf("%s: %d prefill tokens, want %d", cache, computed, want)
		}
	}
}

func TestForwardHookMustForward(t *testing.T) {
	l := tiny(t, nil)
	want := tokens(t, l, workload(4))
	if err := l.SetForwardHook(func(llm.BatchInfo, func() error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Generate(context.Background(), workload(4), nil); !errors.Is(err, llm.ErrNotForwarded) {
		t.Errorf("a hook that does not forward: %v", err)
	}
	if err := l.SetForwardHook(nil); err != nil {
		t.Fatal(err)
	}
	if got := tokens(t, l, workload(4)[:1]); !equal(got[0], want[0]) {
		t.Errorf("without the hook: %v, want %v", got[0], want[0])
	}
}

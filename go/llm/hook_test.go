package llm_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
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

func TestForwardHookCanNotHideAFailure(t *testing.T) {
	l := tiny(t, nil)
	err := l.SetForwardHook(func(_ llm.BatchInfo, forward func() error) error {
		_ = forward()
		_ = forward() // which is refused
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Generate(context.Background(), workload(2), nil); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a hook that forwards twice: %v", err)
	}
	if err := l.CheckIntegrity(); err != nil {
		t.Error(err)
	}
}

// TestSetMaxExtendTokens changes the budget within a run, from the hook: batches
// keep to it from the next one on, and the tokens stay the same.
func TestSetMaxExtendTokens(t *testing.T) {
	l := tiny(t, func(c *llm.Config) { c.MaxExtendTokens, c.CacheType = 64, "naive" })
	var req llm.Request
	req.Params = llm.DefaultSampling()
	req.Params.MaxTokens, req.Params.IgnoreEOS = 4, true
	for i := range 100 {
		req.TokenIDs = append(req.TokenIDs, int32(i))
	}
	want := tokens(t, l, []llm.Request{req})

	budgets := []int{40, 7, 64, 5}
	var chunks []int
	err := l.SetForwardHook(func(b llm.BatchInfo, forward func() error) error {
		if b.Prefill {
			chunks = append(chunks, len(b.Positions))
			if err := l.SetMaxExtendTokens(budgets[min(len(chunks), len(budgets)-1)]); err != nil {
				t.Error(err)
			}
		}
		return forward()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetMaxExtendTokens(budgets[0]); err != nil {
		t.Fatal(err)
	}
	if got := tokens(t, l, []llm.Request{req}); !equal(got[0], want[0]) {
		t.Errorf("tokens %v, want %v", got[0], want[0])
	}
	if !slices.Equal(chunks, []int{40, 7, 53}) {
		t.Errorf("chunks %v, want 40, 7 and the rest", chunks)
	}
	for _, n := range []int{-1, 0, 65} {
		var invalid *llm.InvalidError
		if err := l.SetMaxExtendTokens(n); !errors.As(err, &invalid) || invalid.Field != "max_extend_tokens" {
			t.Errorf("%d: %v", n, err)
		}
	}
	if n := l.MaxExtendTokens(); n != 5 {
		t.Errorf("the budget is %d, want 5", n)
	}
}

package llm_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// Cases from public bug reports about schedulers and caches.

func draw(rng *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(250))
	}
	return ids
}

func greedy(ids []int32, n int) llm.Request {
	p := llm.DefaultSampling()
	p.MaxTokens, p.IgnoreEOS = n, true
	return llm.Request{TokenIDs: ids, Params: p}
}

// checkReclaimable asks for a clean engine in which every page can be had again.
func checkReclaimable(t *testing.T, l *llm.LLM) {
	t.Helper()
	waitIdle(t, l)
	if err := l.CheckIntegrity(); err != nil {
		t.Error(err)
	}
	if s := l.Stats(); s.FreePages+s.EvictablePages != s.TotalPages {
		t.Errorf("%d free and %d evictable pages of %d", s.FreePages, s.EvictablePages, s.TotalPages)
	}
}

// TestAbortRacesWithFinish cuts short streams at random moments, often in the
// step that ends them (sgl-project/mini-sglang#111).
func TestAbortRacesWithFinish(t *testing.T) {
	l := tiny(t, func(c *llm.Config) { c.NumPageOverride = 256; c.MaxSeqLenOverride = 64 })
	probe := workload(3)[:1]
	want := tokens(t, l, probe)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 9))
			for range 250 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(5000))*time.Microsecond)
				s, err := l.Stream(ctx, greedy(draw(rng, 1+rng.IntN(20)), 1+rng.IntN(4)))
				if err != nil {
					t.Error(err)
				} else {
					for err == nil {
						_, err = s.Next(context.Background())
					}
					s.Close()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	checkReclaimable(t, l)
	if diff := cmp.Diff(want, tokens(t, l, probe)); diff != "" {
		t.Errorf("answers changed after 2000 aborts (-before +after):\n%s", diff)
	}
}

// TestWhollyCachedPrompt computes at least one token of a prompt that the cache
// holds to its end (GeeeekExplorer/nano-vllm#144).
func TestWhollyCachedPrompt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	long := draw(rng, 33)
	l := tiny(t, func(c *llm.Config) { c.PageSize = 16; c.NumPageOverride = 64 })
	for _, n := range []int{33, 32, 16, 20} {
		cold := tokens(t, tiny(t, func(c *llm.Config) { c.CacheType = "naive" }), []llm.Request{greedy(long[:n], 8)})
		for range 3 {
			outs, err := l.Generate(context.Background(), []llm.Request{greedy(long[:n], 8)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(cold[0], outs[0].TokenIDs); diff != "" {
				t.Errorf("prompt of %d (-cold +cached):\n%s", n, diff)
			}
			if c := outs[0].Usage.CachedTokens; c > n-1 || c%16 != 0 {
				t.Errorf("prompt of %d: %d cached tokens", n, c)
			}
		}
	}
}

// TestRecycledPages asks one prompt again and again while others recycle all
// pages (GeeeekExplorer/nano-vllm#163, vllm-project/vllm#4761).
func TestRecycledPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	l := tiny(t, func(c *llm.Config) { c.PageSize = 4; c.NumPageOverride = 36; c.MaxSeqLenOverride = 64 })
	x := greedy(draw(rng, 30), 6)
	want := tokens(t, l, []llm.Request{x})[0]
	for round := range 200 {
		var others []llm.Request
		for range rng.IntN(4) {
			n := rng.IntN(30)
			others = append(others, greedy(append(append([]int32(nil), x.TokenIDs[:n]...), draw(rng, 30-n)...), 6))
		}
		got := tokens(t, l, append(others, x))
		if diff := cmp.Diff(want, got[len(got)-1]); diff != "" {
			t.Fatalf("round %d (-first +now):\n%s", round, diff)
		}
	}
	checkReclaimable(t, l)
}

// TestLoneRequestOutgrowsThePool ends with length and without a loop
// (sgl-project/sglang#19881), alone and among others.
func TestLoneRequestOutgrowsThePool(t *testing.T) {
	l := tiny(t, func(c *llm.Config) { c.NumPageOverride = 64 })
	req := greedy(draw(rand.New(rand.NewPCG(3, 3)), 40), 200)
	for _, n := range []int{1, 4} {
		reqs := make([]llm.Request, n)
		for i := range reqs {
			reqs[i] = req
		}
		outs, err := l.Generate(context.Background(), reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range outs {
			if o.Finish != llm.FinishLength || len(o.TokenIDs) != 24 {
				t.Errorf("%d of %d: %d tokens, %s", i, n, len(o.TokenIDs), o.Finish)
			}
		}
	}
	checkReclaimable(t, l)
}

// TestRequestBiggerThanThePool is refused at once and blocks nobody
// (vllm-project/vllm#39734).
func TestRequestBiggerThanThePool(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	l := tiny(t, func(c *llm.Config) { c.NumPageOverride = 512; c.MaxSeqLenOverride = 4096 })
	_, err := l.Stream(context.Background(), greedy(draw(rng, 1000), 4))
	if invalid := new(llm.InvalidError); !errors.As(err, &invalid) || invalid.Field != "prompt" {
		t.Errorf("a prompt of 1000 tokens in a pool of 512: %v", err)
	}
	var small []llm.Request
	for range 10 {
		small = append(small, greedy(draw(rng, 10), 4))
	}
	tokens(t, l, small)
}

// TestManyRequestsFewSlots keeps the order of 1000 outputs
// (vllm-project/vllm#15041).
func TestManyRequestsFewSlots(t *testing.T) {
	l := tiny(t, func(c *llm.Config) { c.MaxRunningReq = 4 })
	a, b := greedy([]int32{7, 8, 9}, 2), greedy([]int32{10, 11}, 3)
	want := tokens(t, l, []llm.Request{a, b})
	reqs := make([]llm.Request, 1000)
	for i := range reqs {
		reqs[i] = []llm.Request{a, b}[i%2]
	}
	for i, got := range tokens(t, l, reqs) {
		if !equal(got, want[i%2]) {
			t.Fatalf("output %d is %v, want %v", i, got, want[i%2])
		}
	}
}

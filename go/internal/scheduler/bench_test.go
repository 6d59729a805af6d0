package scheduler

import (
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache/radix"
)

// BenchmarkNext plans and completes decode steps of 256 running requests beside
// a prefix tree of 100,000 pages, with one batch in flight.
func BenchmarkNext(b *testing.B) {
	const running, treePages, prompt, output = 256, 100_000, 100, 60_000
	s := New(Config{
		PageSize: 1, NumPages: 1 << 24, MaxRunning: running, MaxExtendTokens: 1 << 20, MaxSeqLen: 1 << 22, EOS: []int32{-1},
	}, radix.New(1))
	uid := core.UID(0)
	add := func(maxTokens int) {
		uid++
		r := &core.Req{UID: uid, Params: core.DefaultSampling(), IDs: make([]int32, prompt, prompt+maxTokens), PromptLen: prompt}
		r.Pages = make([]core.Page, 0, prompt+maxTokens)
		for i := range r.IDs {
			r.IDs[i] = int32(uid) // no two prompts agree
		}
		r.Params.MaxTokens = maxTokens
		if err := s.Add(r); err != nil {
			b.Fatal(err)
		}
	}
	tokens := make([]int32, running)
	for range treePages / prompt {
		add(1)
	}
	for !s.Idle() {
		batch := s.Next()
		s.Complete(batch, tokens[:len(batch.Seqs)])
	}
	for range running {
		add(output)
	}
	flying := s.Next()
	b.ReportAllocs()
	for b.Loop() {
		next := s.Next()
		s.Complete(flying, tokens)
		flying = next
	}
	if got := s.Status(); got.CachedPages < treePages || got.Running != running {
		b.Fatalf("the benchmark ran on %+v", got)
	}
}

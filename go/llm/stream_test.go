package llm_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// waitIdle waits until no request is in the engine and nothing is in flight.
func waitIdle(t *testing.T, l *llm.LLM) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if s := l.Stats(); s.Waiting+s.Running == 0 {
			return
		}
	}
	t.Fatalf("requests are left: %+v", l.Stats())
}

func tiny(t *testing.T, change func(*llm.Config)) *llm.LLM {
	t.Helper()
	cfg := llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 2048, MaxSeqLenOverride: 1024}
	if change != nil {
		change(&cfg)
	}
	return open(t, cfg)
}

func endless(ids ...int32) llm.Request {
	p := llm.DefaultSampling()
	p.IgnoreEOS, p.MaxTokens = true, 1<<40
	return llm.Request{TokenIDs: ids, Params: p}
}

func readAll(t *testing.T, s *llm.Stream) (ids []int32, text string, last llm.Event) {
	t.Helper()
	for {
		ev, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return ids, text, last
		}
		if err != nil {
			t.Fatal(err)
		}
		if last.Finish != "" {
			t.Fatalf("an event after the end: %+v", ev)
		}
		if ev.HasToken {
			ids = append(ids, ev.Token)
		}
		text += ev.Text
		last = ev
	}
}

func TestStreamEqualsGenerate(t *testing.T) {
	l := tiny(t, nil)
	for _, req := range workload(6) {
		want := tokens(t, l, []llm.Request{req})[0]
		if req.Params.Temperature > 0 {
			continue // another number, another seed
		}
		s, err := l.Stream(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		ids, text, last := readAll(t, s)
		decoded, err := l.Tokenizer().Decode(want, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) != len(want) || text != decoded || last.Finish == "" || last.Usage.CompletionTokens != len(want) {
			t.Errorf("stream gave %v %q (%+v), Generate %v %q", ids, text, last, want, decoded)
		}
	}
}

func TestAbortFreesEverything(t *testing.T) {
	l := tiny(t, func(c *llm.Config) { c.MaxRunningReq = 2 })
	var streams []*llm.Stream
	ctx, cancel := context.WithCancel(context.Background())
	for range 5 { // two run, three wait
		s, err := l.Stream(ctx, endless(1, 2, 3))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	if _, err := streams[0].Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	streams[1].Close()
	cancel()
	for i, s := range streams {
		if _, _, last := readAll(t, s); last.Finish != llm.FinishAbort {
			t.Errorf("stream %d ended with %q", i, last.Finish)
		}
		s.Close()
	}
	waitIdle(t, l)
	if s := l.Stats(); s.AbortedReqs != 5 || s.FreePages+s.EvictablePages != s.TotalPages {
		t.Errorf("after five aborts: %+v", s)
	}
	if got := tokens(t, l, workload(1)); len(got[0]) == 0 {
		t.Error("the engine gives nothing after aborts")
	}
}

func TestGenerateCancelled(t *testing.T) {
	l := tiny(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := l.Generate(ctx, []llm.Request{endless(1), endless(2)}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Generate gave %v", err)
	}
	waitIdle(t, l)
}

func TestInvalidRequests(t *testing.T) {
	l := tiny(t, func(c *llm.Config) { c.MaxSeqLenOverride = 64 })
	good := llm.DefaultSampling()
	bad := good
	bad.TopP = 0
	for _, tt := range []struct {
		name  string
		req   llm.Request
		field string
	}{
		{"empty", llm.Request{TokenIDs: []int32{}, Params: good}, "prompts[1]"},
		{"at the limit", llm.Request{TokenIDs: make([]int32, 64), Params: good}, "prompts[1]"},
		{"outside the vocabulary", llm.Request{TokenIDs: []int32{320}, Params: good}, "prompts[1]"},
		{"top_p", llm.Request{TokenIDs: []int32{1}, Params: bad}, "sampling_params[1].top_p"},
	} {
		_, err := l.Generate(context.Background(), []llm.Request{{TokenIDs: []int32{1}, Params: good}, tt.req}, nil)
		var invalid *llm.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != tt.field {
			t.Errorf("%s: error %v, want one about %s", tt.name, err, tt.field)
		}
	}
	outs, err := l.Generate(context.Background(), []llm.Request{{TokenIDs: make([]int32, 63), Params: good}}, nil)
	if err != nil || outs[0].Finish == "" || len(outs[0].TokenIDs) > 1 {
		t.Errorf("one under the limit: %+v, %v", outs, err)
	}
}

func TestCloseEndsRequestsAndRefusesNew(t *testing.T) {
	l := tiny(t, nil)
	s, err := l.Stream(context.Background(), endless(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, last := readAll(t, s); last.Finish != llm.FinishAbort {
		t.Errorf("the running stream ended with %q", last.Finish)
	}
	s.Close()
	if _, err := l.Stream(context.Background(), endless(1)); !errors.Is(err, llm.ErrClosed) {
		t.Errorf("Stream after Close gave %v", err)
	}
	if _, err := l.Generate(context.Background(), []llm.Request{endless(1)}, nil); !errors.Is(err, llm.ErrClosed) {
		t.Errorf("Generate after Close gave %v", err)
	}
}

func TestDrain(t *testing.T) {
	l := tiny(t, nil)
	req := endless(1)
	req.Params.MaxTokens = 200
	s, err := l.Stream(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if ids, _, last := readAll(t, s); len(ids) != 200 || last.Finish != llm.FinishLength {
		t.Errorf("the running stream was cut: %d tokens, %q", len(ids), last.Finish)
	}
	if _, err := l.Stream(context.Background(), req); !errors.Is(err, llm.ErrDraining) {
		t.Errorf("Stream while draining gave %v", err)
	}
}

func TestDrainTimeoutAborts(t *testing.T) {
	l := tiny(t, nil)
	s, err := l.Stream(context.Background(), endless(1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := l.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain gave %v", err)
	}
	if _, _, last := readAll(t, s); last.Finish != llm.FinishAbort {
		t.Errorf("the stream ended with %q", last.Finish)
	}
}

func TestSeedsAndGreedyAreStable(t *testing.T) {
	l := tiny(t, nil)
	seed := uint64(7)
	p := llm.DefaultSampling()
	p.Temperature, p.Seed, p.MaxTokens, p.IgnoreEOS = 1, &seed, 20, true
	req := llm.Request{TokenIDs: []int32{5, 6, 7}, Params: p}
	alone := tokens(t, l, []llm.Request{req})[0]
	among := tokens(t, l, append(workload(20), req))[20]
	other := *req.Params.Seed + 1
	req.Params.Seed = &other
	differs := tokens(t, l, []llm.Request{req})[0]
	if !equal(alone, among) || equal(alone, differs) {
		t.Errorf("seed 7 alone %v, in a batch %v, seed 8 %v", alone, among, differs)
	}
}

func equal(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestConfigErrors(t *testing.T) {
	for field, cfg := range map[string]llm.Config{
		"model_path": {}, "dtype": {Model: "x", DType: "int3"}, "page_size": {Model: "x", PageSize: 257},
		"cache_type": {Model: "x", CacheType: "lru"}, "memory_ratio": {Model: "x", MemoryRatio: 1.5}, "cuda_graph_max_bs": {Model: "x", CUDAGraphMaxBS: new(4096)}, "cuda_graph_bs": {Model: "x", CUDAGraphBS: []int{1, 0}},
		"attention_backend": {Model: "x", AttentionBackend: "fa,xformers"}, "kv_cache_dtype": {Model: tinyModel, KVCacheDType: "fp8", Device: "cpu"},
		"quantization": {Model: tinyModel, Quantization: "fp8", Device: "cpu"},
	} {
		_, err := llm.New(context.Background(), cfg)
		if err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

// TestStopIsNoAbort: the statistics tell a request that ended as it was asked to
// from one that was cut short.
func TestStopIsNoAbort(t *testing.T) {
	l := tiny(t, nil)
	req := endless(1, 2, 3)
	req.Params.LogitBias = []llm.TokenBias{{Token: 'x', Bias: 100}}
	req.StopTokenIDs = []int32{'x'}
	eventsOf(t, l, req)
	eventsOf(t, l, req)
	waitIdle(t, l)
	if s := l.Stats(); s.AbortedReqs != 0 || s.FinishedReqs != 2 || s.CachedTokens != 2 {
		t.Errorf("after two stops: %d aborted, %d finished, %d tokens cached", s.AbortedReqs, s.FinishedReqs, s.CachedTokens)
	}
}

// TestSeedZero: zero is a seed like any other, and not the default.
func TestSeedZero(t *testing.T) {
	sampled := workload(4)[2:4]
	draw := func(seed *uint64) [][]int32 {
		return tokens(t, tiny(t, func(c *llm.Config) { c.Seed = seed }), sampled)
	}
	zero := draw(new(uint64(0)))
	if !cmp.Equal(zero, draw(new(uint64(0)))) {
		t.Error("seed 0 gives different tokens")
	}
	if cmp.Equal(zero, draw(nil)) {
		t.Error("seed 0 gives the tokens of the default seed")
	}
	if !cmp.Equal(draw(nil), draw(new(uint64(42)))) {
		t.Error("the default seed is not 42")
	}
}

// A text that can't fit is refused before it is encoded, by its bytes.
func TestTextTooLong(t *testing.T) {
	l := tiny(t, nil)
	req := greedy(nil, 4)
	req.TokenIDs, req.Text = nil, strings.Repeat("a", 1<<20)
	_, err := l.Generate(context.Background(), []llm.Request{req}, nil)
	if err == nil || !strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("error %v, want one that names the bytes", err)
	}
}

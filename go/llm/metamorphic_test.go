package llm_test

import (
	stdcmp "cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/go/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tinyModel = "../internal/model/testdata/tiny/llama-tied"

func open(t *testing.T, cfg llm.Config) *llm.LLM {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := llm.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// workload is requests of many lengths, greedy and sampled, some of which share
// their beginnings.
func workload(n int) []llm.Request {
	rng := rand.New(rand.NewPCG(1, 2))
	shared := make([]int32, 24)
	for i := range shared {
		shared[i] = int32(rng.IntN(250))
	}
	reqs := make([]llm.Request, n)
	for i := range reqs {
		var ids []int32
		if i%3 == 0 {
			ids = append(ids, shared...)
		}
		for range 1 + rng.IntN(40) {
			ids = append(ids, int32(rng.IntN(250)))
		}
		p := llm.DefaultSampling()
		p.MaxTokens = 1 + rng.IntN(24)
		p.IgnoreEOS = i%2 == 0
		if i%4 >= 2 {
			p.Temperature, p.TopK, p.TopP = 0.8, 20, 0.95
		}
		if i%8 == 7 {
			p.TopK, p.TopP = -1, 1
		}
		reqs[i] = llm.Request{TokenIDs: ids, Params: p}
	}
	return reqs
}

func tokens(t *testing.T, l *llm.LLM, reqs []llm.Request) [][]int32 {
	t.Helper()
	outs, err := l.Generate(context.Background(), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([][]int32, len(outs))
	for i, o := range outs {
		ids[i] = o.TokenIDs
	}
	return ids
}

// TestMetamorphic runs one workload under every combination of scheduling
// options: the tokens must be equal, since no row's result depends on its batch.
func TestMetamorphic(t *testing.T) {
	for _, dev := range []string{"cpu", "ref"} {
		for _, dtype := range []string{"float32", "bfloat16"} {
			t.Run(dev+"/"+dtype, func(t *testing.T) {
				reqs := workload(12)
				if dev == "ref" {
					reqs = reqs[:6]
				}
				base := llm.Config{Model: tinyModel, Device: dev, DType: dtype, NumPageOverride: 4096, MaxSeqLenOverride: 128}
				want := tokens(t, open(t, base), reqs)
				for _, cfg := range affordable(base, append(variants(base), policies(base)...)) {
					if diff := cmp.Diff(want, tokens(t, open(t, cfg), reqs)); diff != "" {
						t.Errorf("%+v: tokens differ (-base +got):\n%s", cfg, diff)
					}
				}
			})
		}
	}
}

// TestMetamorphicTypes runs the workload with other types of weights and caches,
// quantized ones stored so or quantized at load, under the options that cut batches
// differently.
func TestMetamorphicTypes(t *testing.T) {
	tiny := filepath.Dir(tinyModel)
	for _, base := range []llm.Config{
		{Model: tinyModel, Quantization: "int8"},
		{Model: tinyModel, Quantization: "int4"},
		{Model: tinyModel, DType: "float16"},
		{Model: tinyModel, KVCacheDType: "int8"},
		{Model: filepath.Join(tiny, "qwen3-tied", "q4_1.gguf")},
		{Model: filepath.Join(tiny, "qwen3-256", "q4_k_m.gguf")},
		{Model: filepath.Join(tiny, "qwen3moe-every-layer", "q4_0.gguf")},
	} {
		t.Run(filepath.Base(filepath.Dir(base.Model))+"/"+filepath.Base(base.Model)+base.Quantization+base.DType+base.KVCacheDType, func(t *testing.T) {
			base.Device, base.DType, base.NumPageOverride, base.MaxSeqLenOverride = "cpu", stdcmp.Or(base.DType, "bfloat16"), 4096, 128
			reqs := workload(12)
			want := tokens(t, open(t, base), reqs)
			all := append(policies(base), variants(base)...)
			for i := 0; i < len(all); i += 3 {
				if diff := cmp.Diff(want, tokens(t, open(t, all[i]), reqs)); diff != "" {
					t.Errorf("%+v: tokens differ (-base +got):\n%s", all[i], diff)
				}
			}
		})
	}
}

// TestFloat8Cache: the reference device has caches of fp8, which the CPU has not.
func TestFloat8Cache(t *testing.T) {
	base := llm.Config{Model: tinyModel, KVCacheDType: "fp8", Device: "ref", NumPageOverride: 1024, MaxSeqLenOverride: 128}
	cut := base
	cut.PageSize, cut.NumPageOverride, cut.MaxExtendTokens = 16, 64, 5
	if diff := cmp.Diff(tokens(t, open(t, base), workload(4)), tokens(t, open(t, cut), workload(4))); diff != "" {
		t.Errorf("tokens differ (-whole +cut):\n%s", diff)
	}
}

// affordable are the configurations that a device runs in seconds: of the reference,
// which takes minutes for all, every fifth. Scheduling is the same on every device.
func affordable(base llm.Config, all []llm.Config) []llm.Config {
	if base.Device != "ref" {
		return all
	}
	var some []llm.Config
	for i := 0; i < len(all); i += 5 {
		some = append(some, all[i])
	}
	return some
}

// variants are all combinations of the options that must not matter.
func variants(base llm.Config) []llm.Config {
	threads := []int{1, 2}
	if base.Device == "ref" {
		threads = []int{1} // it has no threads
	}
	var all []llm.Config
	for _, page := range []int{1, 16, 64} {
		for _, extend := range []int{16, 64, 8192} {
			for _, running := range []int{1, 4, 16} {
				for _, n := range threads {
					cfg := base
					cfg.PageSize, cfg.MaxExtendTokens, cfg.MaxRunningReq, cfg.Threads = page, extend, running, n
					cfg.NumPageOverride = base.NumPageOverride / page
					all = append(all, cfg)
				}
			}
		}
	}
	return all
}

// policies are the scheduler's other options, in a pool that holds them all and
// in one that makes it preempt.
func policies(base llm.Config) []llm.Config {
	var all []llm.Config
	for _, cache := range []string{"radix", "naive"} {
		for _, pages := range []int{4096, 90} {
			for i, change := range []func(*llm.Config){
				func(c *llm.Config) { c.DisableOverlap = true },
				func(c *llm.Config) { c.SchedulePolicy = "lpm" },
				func(c *llm.Config) { c.Admission = "conservative" },
				func(c *llm.Config) { c.MixedTokens = new(5) },
				func(c *llm.Config) { c.MixedTokens, c.DisableOverlap = new(0), true },
				func(c *llm.Config) { c.TPSize = 2 },
			} {
				cfg := base
				cfg.CacheType, cfg.NumPageOverride = cache, pages
				cfg.MaxExtendTokens = 16 + 100*(i%2)
				change(&cfg)
				all = append(all, cfg)
			}
		}
	}
	return all
}

// equalUnderPolicies runs requests under the scheduler's policies, few at once and
// in large pages, too: the tokens must be those of base.
func equalUnderPolicies(t *testing.T, base llm.Config, reqs []llm.Request, want [][]int32) {
	t.Helper()
	all := policies(base)
	for _, running := range []int{1, 4} {
		cfg := base
		cfg.MaxRunningReq, cfg.MaxExtendTokens, cfg.PageSize, cfg.NumPageOverride = running, 16, 16, 256
		all = append(all, cfg)
	}
	for _, cfg := range affordable(base, all) {
		if diff := cmp.Diff(want, tokens(t, open(t, cfg), reqs)); diff != "" {
			t.Errorf("%+v: tokens differ (-base +got):\n%s", cfg, diff)
		}
	}
}

// equalUnderPreemption runs requests as prepared in a pool that holds them all and
// in one that makes the scheduler put some back: the tokens must be equal.
func equalUnderPreemption(t *testing.T, prepare func([]llm.Request) []llm.Request) {
	t.Helper()
	reqs := workload(40)
	for i := range reqs {
		reqs[i].Params.MaxTokens = 60
	}
	reqs = prepare(reqs)
	base := llm.Config{Model: tinyModel, DType: "float32", PageSize: 4, NumPageOverride: 4096, MaxSeqLenOverride: 128}
	want := tokens(t, open(t, base), reqs)
	base.NumPageOverride = 100
	small := open(t, base)
	if diff := cmp.Diff(want, tokens(t, small, reqs)); diff != "" {
		t.Errorf("tokens differ (-large pool +small pool):\n%s", diff)
	}
	if small.Stats().Preemptions == 0 {
		t.Error("the small pool made no preemption")
	}
}

// TestPreemption runs 200 requests in a pool that holds about a tenth of what
// they need: all end, with the tokens that a large pool gives, and every page can
// be had again.
func TestPreemption(t *testing.T) {
	reqs := workload(200)
	for i := range reqs {
		reqs[i].Params.MaxTokens = 60 // longer than the prompts, so that a wrong estimate costs
	}
	large := open(t, llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 16384, MaxSeqLenOverride: 128})
	want := tokens(t, large, reqs)
	need := 0
	for i, ids := range want {
		need += len(reqs[i].TokenIDs) + len(ids)
	}
	const pageSize = 4
	cfg := llm.Config{Model: tinyModel, DType: "float32", PageSize: pageSize, NumPageOverride: need / pageSize / 10, MaxSeqLenOverride: 128}
	small := open(t, cfg)
	if diff := cmp.Diff(want, tokens(t, small, reqs)); diff != "" {
		t.Errorf("tokens differ (-large pool +small pool):\n%s", diff)
	}
	waitIdle(t, small)
	s := small.Stats()
	if s.Preemptions == 0 {
		t.Error("a pool for a tenth of the demand made no preemption")
	}
	if s.FreePages+s.EvictablePages != s.TotalPages {
		t.Errorf("at the end %d free and %d evictable pages of %d", s.FreePages, s.EvictablePages, s.TotalPages)
	}
	if err := small.CheckIntegrity(); err != nil {
		t.Error(err)
	}
}

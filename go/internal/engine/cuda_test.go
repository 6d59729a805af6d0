//go:build !cuda && amd64

package engine

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/cuda"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

func cudaEmulated(t *testing.T) *cuda.Device { return cudaOf(t, 0) }

// cudaOf emulates a GPU with so many bytes of memory; 0: enough.
func cudaOf(t *testing.T, memory int64) *cuda.Device {
	t.Helper()
	dev, err := cuda.NewEmulated(cuda.Emulation{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// eachTiny calls check for every tiny model.
func eachTiny(t *testing.T, check func(t *testing.T, path string, want expected)) {
	files, err := filepath.Glob(tiny + "/*/expected.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tiny models: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) { check(t, filepath.Dir(file), readExpected(t, file)) })
	}
}

// TestCUDALogits: the CUDA kernels, emulated, give transformers' logits and tokens.
func TestCUDALogits(t *testing.T) {
	const steps = 6 // of each prompt: the emulation is slow
	eachTiny(t, func(t *testing.T, path string, want expected) {
		for i, p := range want.Prompts {
			want.Prompts[i].Greedy = p.Greedy[:min(steps, len(p.Greedy))]
		}
		compare(t, newSolo(t, path, ops.F32, want.MaxSeqLen, cudaEmulated(t)), want)
	})
}

// TestCUDARounded: with weights on tensor cores and rounded caches the logits stay
// within TestRounded's bounds.
func TestCUDARounded(t *testing.T) {
	for _, c := range []struct {
		weights, kv ops.DType
		bound       float64
	}{{ops.BF16, ops.BF16, 0.5}, {ops.F16, ops.F16, 0.03}, {ops.F32, ops.I8, 1}} {
		t.Run(c.weights.String()+","+c.kv.String(), func(t *testing.T) {
			eachTiny(t, func(t *testing.T, path string, want expected) {
				cfg := Config{DType: c.weights, KVDType: c.kv, Quantization: Dequantized, MaxSeqLen: want.MaxSeqLen}
				r, p := newSoloAs(t, path, cfg, cudaEmulated(t)), want.Prompts[0]
				r.start(p.IDs)
				near(t, "first position", p.First, r.logits(1), c.bound)
				if len(p.IDs) > 1 {
					near(t, "last position", p.Last, r.logits(len(p.IDs)), c.bound)
				}
			})
		})
	}
}

// TestCUDAFlashInfer: so they do with attention by FlashInfer, whose kernel is stood in for.
func TestCUDAFlashInfer(t *testing.T) {
	for _, name := range []string{"gemma3-scaled", "mistral-window", "qwen3-headdim128"} {
		dir := filepath.Join(tiny, name)
		want := readExpected(t, filepath.Join(dir, "expected.json"))
		dev := cudaEmulated(t)
		dev.EmulateFlashInfer()
		r := newSoloAs(t, dir, Config{DType: ops.BF16, KVDType: ops.BF16, MaxSeqLen: want.MaxSeqLen}, dev)
		for _, p := range want.Prompts {
			r.start(p.IDs)
			near(t, name, p.Last, r.logits(len(p.IDs)), 0.5)
		}
	}
}

// TestCUDAFloat8: so they do with weights of e4m3, as the checkpoint has them.
func TestCUDAFloat8(t *testing.T) {
	for _, name := range []string{"qwen3-fp8", "llama-fp8"} {
		dir := filepath.Join(tiny, name)
		want := readExpected(t, filepath.Join(dir, "expected.json"))
		r := newSoloAs(t, dir, Config{DType: ops.BF16, KVDType: ops.BF16, HasFloat8: true}, cudaEmulated(t))
		for _, p := range want.Prompts {
			r.start(p.IDs)
			near(t, name, p.Last, r.logits(len(p.IDs)), 0.5)
		}
	}
}

// TestCUDAGraphs: graphs and the padding that they need change no token, and from the
// first step on all decoding is launched as graphs. Three sequences of different lengths
// decode beside each other, and the last ones alone.
func TestCUDAGraphs(t *testing.T) {
	t.Run("ours", func(t *testing.T) { testCUDAGraphs(t, "qwen3-tied", func(*cuda.Device) {}) })
	t.Run("flashinfer", func(t *testing.T) { testCUDAGraphs(t, "mistral-window", (*cuda.Device).EmulateFlashInfer) })
}

func testCUDAGraphs(t *testing.T, model string, prepare func(*cuda.Device)) {
	const steps = 12
	tokens := func(rows int) (ids [][]int32, launches int) {
		dev := cudaEmulated(t)
		dev.UseGraphs(rows)
		prepare(dev)
		f := newFew(t, filepath.Join(tiny, model), Config{
			DType: ops.BF16, KVDType: ops.BF16, Quantization: Dequantized, PageSize: 8, NumPages: 30, MaxRunning: 4, MaxExtendTokens: 64, GraphSizes: GraphSizes(rows),
		}, dev)
		f.start([]int32{1, 2, 3}, []int32{4, 5, 6, 7, 8, 9, 10, 11, 12}, []int32{13})
		before := dev.GraphLaunches()
		for range steps {
			f.step(3)
		}
		f.step(1)
		return f.ids(), dev.GraphLaunches() - before
	}
	want, _ := tokens(0)
	got, launches := tokens(4)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("tokens differ (-without graphs +with):\n%s", diff)
	}
	if launches != steps+1 {
		t.Errorf("%d of %d steps were launched as graphs", launches, steps+1)
	}
}

// TestCUDARanks: two GPUs that exchange on their own give the tokens of one, with graphs
// and without.
func TestCUDARanks(t *testing.T) {
	for _, name := range []string{"qwen3-tied", "qwen3moe-every-layer"} {
		var want [][]int32
		for _, ranks := range []int{1, 2} {
			for _, rows := range []int{0, 4} {
				t.Run(fmt.Sprintf("%s/%d/%d", name, ranks, rows), func(t *testing.T) {
					devs := cudaRanks(t, ranks, rows)
					f := newFew(t, filepath.Join(tiny, name), Config{
						DType: ops.BF16, KVDType: ops.BF16, Quantization: Dequantized, PageSize: 8, NumPages: 30, MaxRunning: 4, MaxExtendTokens: 32, GraphSizes: GraphSizes(rows),
					}, devs...)
					f.start([]int32{1, 2, 3}, []int32{4, 5, 6, 7, 8, 9, 10, 11, 12}, []int32{13})
					for range 6 {
						f.step(3)
					}
					got := f.ids()
					if want == nil {
						want = got
					}
					if diff := gocmp.Diff(want, got); diff != "" {
						t.Errorf("tokens differ:\n%s", diff)
					}
					for i, dev := range devs {
						if launches := dev.(*cuda.Device).GraphLaunches(); (launches > 0) != (rows > 0) {
							t.Errorf("rank %d launched %d graphs", i, launches)
						}
					}
				})
			}
		}
	}
}

// cudaRanks emulates GPUs that exchange, for graphs of so many rows.
func cudaRanks(t *testing.T, n, rows int) (devs []device.Device) {
	t.Helper()
	ranks, err := cuda.NewEmulatedRanks(n, cuda.Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range ranks {
		dev.UseGraphs(rows)
		devs = append(devs, dev)
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return devs
}

// TestCUDAPages: on a device with memory of its own the KV cache gets what weights and
// the largest batch leave of the share that it may use.
func TestCUDAPages(t *testing.T) {
	const memory, ratio = 3 << 20, 0.75
	base := Config{DType: ops.F32, KVDType: ops.F32, PageSize: 16, MaxRunning: 64, MaxExtendTokens: 64, MemoryRatio: ratio, GraphSizes: GraphSizes(2)}
	path := filepath.Join(tiny, "llama-tied")
	dev := cudaOf(t, memory)
	f := newFew(t, path, base, dev)
	n, bound := f.e.Pages()
	left, err := dev.FreeMemory()
	if err != nil {
		t.Fatal(err)
	}
	// Graphs take a status word each; a page that does not fit whole is left, too.
	page, limit := f.e.ranks[0].pageBytes(16), int64(math.Round((1-ratio)*memory))
	if left > limit+page || left < limit-page || !strings.Contains(bound, "memory_ratio 0.75 of 2 MiB") {
		t.Errorf("%d pages of %d bytes by %q leave %d bytes free, want %d", n, page, bound, left, limit)
	}
	base.MaxRunning = 2
	if n, bound := newFew(t, path, base, cudaOf(t, memory)).e.Pages(); n != 2*80/16 || bound != usefulBound {
		t.Errorf("for two requests: %d pages, %s", n, bound)
	}
	for _, c := range []struct {
		memory int64
		extend int
		ratio  float64
		want   string
	}{
		{memory, 64, 0.1, "memory_ratio 0.1 of it leaves 0 MiB for KV pages of 8192 bytes: raise memory_ratio, lower max_extend_tokens"},
		{memory, 8192, 1, "lower memory_ratio, num_page_override, max_extend_tokens"},
		{memory / 8, 64, 1, "lower memory_ratio, num_page_override, max_extend_tokens"},
	} {
		cfg := base
		cfg.MaxExtendTokens, cfg.MemoryRatio = c.extend, c.ratio
		if _, err := openFew(t, path, cfg, cudaOf(t, c.memory)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d bytes of memory, %d tokens, ratio %v: %v", c.memory, c.extend, c.ratio, err)
		}
	}
}

// few drives an engine for several requests, without a scheduler.
type few struct {
	t    *testing.T
	e    *Engine
	reqs []*core.Req
}

func openFew(t *testing.T, path string, cfg Config, devs ...device.Device) (*few, error) {
	t.Helper()
	ck, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	mc, err := model.ParseConfig(ck.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Vocab, cfg.MaxSeqLen = mc.VocabSize, 80
	e, err := New(cfg, mc, ck, devs...)
	return &few{t: t, e: e}, err
}

func newFew(t *testing.T, path string, cfg Config, devs ...device.Device) *few {
	t.Helper()
	f, err := openFew(t, path, cfg, devs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.e.Close)
	return f
}

// start computes prompts, each with pages of its own for 80 positions.
func (f *few) start(prompts ...[]int32) {
	f.t.Helper()
	pages := f.e.cfg.pagesOf(80)
	b := &core.Batch{}
	for i, ids := range prompts {
		req := &core.Req{UID: core.UID(i + 1), Params: core.DefaultSampling(), IDs: slices.Clone(ids), PromptLen: len(ids), MaxLen: 80, Slot: i}
		for p := range pages {
			req.Pages = append(req.Pages, core.Page(i*pages+p))
		}
		b.Seqs, b.Tokens = append(b.Seqs, core.Seq{Req: req, End: len(ids), Sample: true}), b.Tokens+len(ids)
		f.reqs = append(f.reqs, req)
	}
	f.run(b)
}

// step computes a token for each of the first n requests.
func (f *few) step(n int) {
	f.t.Helper()
	b := &core.Batch{Phase: core.Decode, Tokens: n}
	for _, req := range f.reqs[:n] {
		b.Seqs = append(b.Seqs, core.Seq{Req: req, Start: len(req.IDs) - 1, End: len(req.IDs), Sample: true})
	}
	f.run(b)
}

// ids are the sequences so far.
func (f *few) ids() (ids [][]int32) {
	for _, req := range f.reqs {
		ids = append(ids, slices.Clone(req.IDs))
	}
	return ids
}

func (f *few) run(b *core.Batch) {
	f.t.Helper()
	if err := f.e.Submit(b); err != nil {
		f.t.Fatal(err)
	}
	next, err := f.e.Wait()
	if err != nil || len(next) != len(b.Seqs) {
		f.t.Fatalf("%d tokens for %d requests: %v", len(next), len(b.Seqs), err)
	}
	for i, token := range next {
		b.Seqs[i].Req.IDs = append(b.Seqs[i].Req.IDs, token)
	}
}

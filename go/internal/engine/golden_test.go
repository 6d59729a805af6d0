package engine

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/device/cpu"
	"github.com/minisgl/minisgl/go/internal/device/ref"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
	"github.com/minisgl/minisgl/go/internal/weights"
)

const tiny = "../model/testdata/tiny"

// expected is what transformers computed for a tiny model (scripts/golden/tiny_models.py).
type expected struct {
	MaxSeqLen int `json:"max_seq_len"` // of the engine, where results depend on it; 0: any
	Prompts   []struct {
		IDs         []int32
		First, Last []float32 // logits of the first and the last position
		Greedy      []int32
		Gaps        []float32
	}
}

func devices(t *testing.T) map[string]device.Device {
	c, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]device.Device{"ref": ref.New(), "cpu": c}
	t.Cleanup(func() {
		for name, d := range m {
			if err := d.Close(); err != nil {
				t.Errorf("closing %s: %v", name, err)
			}
		}
	})
	return m
}

// eachModel calls check for every tiny model in each of these forms that it has,
// on every device.
func eachModel(t *testing.T, forms []string, check func(t *testing.T, path string, dev device.Device, want expected)) {
	files, err := filepath.Glob(tiny + "/*/expected.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tiny models: %v", err)
	}
	for _, file := range files {
		want := readExpected(t, file)
		dir := filepath.Dir(file)
		for _, form := range forms {
			path := filepath.Join(dir, form)
			if _, err := os.Stat(path); err != nil {
				continue // not every model has every form
			}
			for name, dev := range devices(t) {
				t.Run(filepath.Join(filepath.Base(dir), form, name), func(t *testing.T) { check(t, path, dev, want) })
			}
		}
	}
}

func readExpected(t *testing.T, file string) (want expected) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// TestA39_A40_Logits compares logits and greedy tokens in float32 with
// transformers, on every device, for every file form of every tiny model: among
// them are all rope types with prompts beyond their original length, heads that
// are not hidden_size / num_attention_heads wide, biases, and windows that count
// and that don't.
func TestA39_A40_Logits(t *testing.T) {
	eachModel(t, []string{"", "sharded", "fused", "f16.gguf", "f32.gguf"}, func(t *testing.T, path string, dev device.Device, want expected) {
		compare(t, newSolo(t, path, ops.F32, want.MaxSeqLen, dev), want)
	})
}

// compare asks for transformers' logits and greedy tokens.
func compare(t *testing.T, r *solo, want expected) {
	t.Helper()
	for i, p := range want.Prompts {
		r.start(p.IDs)
		near(t, "first position", p.First, r.logits(1), 1e-4)
		if len(p.IDs) > 1 {
			near(t, "last position", p.Last, r.logits(len(p.IDs)), 1e-4)
		}
		if r.e.ranks[0].dev.Name() == "ref" {
			p.Greedy = p.Greedy[:12] // it is slow, and has computed every position of the prompt
		}
		for step, token := range p.Greedy {
			if got := r.step(); got != token && p.Gaps[step] > 1e-3 {
				t.Fatalf("prompt %d, step %d: token %d, transformers has %d with a gap of %v", i, step, got, token, p.Gaps[step])
			}
		}
	}
}

// TestTensorParallel: two and four ranks give the bits of one, and as many
// tensors are read.
func TestTensorParallel(t *testing.T) {
	eachModel(t, []string{""}, func(t *testing.T, path string, dev device.Device, want expected) {
		if dev.Name() == "ref" {
			return // the sharding is the same, and the cpu is faster
		}
		one := newSolo(t, path, ops.F32, want.MaxSeqLen, dev)
		for _, n := range []int{2, 4} {
			if one.mc.CheckShards(n) != nil {
				continue
			}
			var devs []device.Device
			for range n {
				devs = append(devs, devices(t)["cpu"])
			}
			many := newSolo(t, path, ops.F32, want.MaxSeqLen, devs...)
			if a, b := len(one.e.used), len(many.e.used); a != b {
				t.Errorf("%d ranks read %d tensors, one reads %d", n, b, a)
			}
			for _, p := range want.Prompts {
				one.start(p.IDs)
				many.start(p.IDs)
				near(t, "last position", one.logits(len(p.IDs)), many.logits(len(p.IDs)), 0)
				for range 4 {
					if a, b := one.step(), many.step(); a != b {
						t.Fatalf("%d ranks gave token %d, one gave %d", n, b, a)
					}
				}
			}
		}
	})
}

// TestRounded bounds how far logits are from their float32 values with other types.
// The weights of the tiny models are bfloat16 values, nearly all of them float16
// values too. Keys and values are rounded: by 2^-9 of a value in bfloat16, 2^-12 in
// float16, 1/254 of a head's largest value in int8; with bfloat16 weights, so are
// activations. Logits have a standard deviation of about 3.
func TestRounded(t *testing.T) {
	for _, c := range []struct {
		weights, kv ops.DType
		bound       float64
	}{
		{ops.BF16, ops.BF16, 0.5},
		{ops.F16, ops.F16, 0.03},
		{ops.F32, ops.I8, 1},
	} {
		t.Run(c.weights.String()+","+c.kv.String(), func(t *testing.T) {
			eachModel(t, []string{""}, func(t *testing.T, path string, dev device.Device, want expected) {
				r := newSoloAs(t, path, Config{DType: c.weights, KVDType: c.kv, Quantization: Dequantized, MaxSeqLen: want.MaxSeqLen}, dev)
				for _, p := range want.Prompts {
					r.start(p.IDs)
					near(t, "first position", p.First, r.logits(1), c.bound)
					if len(p.IDs) > 1 {
						near(t, "last position", p.Last, r.logits(len(p.IDs)), c.bound)
					}
				}
			})
		})
	}
}

// near asks for a distance of at most bound in every logit.
func near(t *testing.T, what string, want, got []float32, bound float64) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(float64(want[i] - got[i])); !(d <= bound) {
			t.Fatalf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// renamed is a source whose tensors go by other names.
type renamed struct {
	src   Source
	names *strings.Replacer // from those that are asked for to the source's
}

func (r renamed) Tensor(name string) (weights.Tensor, bool) {
	return r.src.Tensor(r.names.Replace(name))
}

// TestMistral3Names: checkpoints of transformers 5 have other names than those of
// before.
func TestMistral3Names(t *testing.T) {
	path := filepath.Join(tiny, "mistral3")
	before := newSolo(t, path, ops.F32, 0, devices(t)["cpu"])
	ck, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	after := newSoloOf(t, ck.Config, renamed{ck, strings.NewReplacer("language_model.model.", "none.",
		"model.language_model.", "language_model.model.", "language_model.lm_head", "none", "lm_head", "language_model.lm_head")},
		Config{Quantization: Dequantized}, devices(t)["cpu"])
	before.start([]int32{1, 2, 3})
	after.start([]int32{1, 2, 3})
	near(t, "last position", before.logits(3), after.logits(3), 0)
}

// solo drives an engine for one request, without a scheduler.
type solo struct {
	t   *testing.T
	mc  model.Config
	e   *Engine
	req *core.Req
}

// newSolo computes in dt, with quantized weights too.
func newSolo(t *testing.T, path string, dt ops.DType, maxSeqLen int, devs ...device.Device) *solo {
	t.Helper()
	return newSoloAs(t, path, Config{DType: dt, KVDType: dt, Quantization: Dequantized, MaxSeqLen: maxSeqLen}, devs...)
}

func newSoloAs(t *testing.T, path string, cfg Config, devs ...device.Device) *solo {
	t.Helper()
	ck, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	return newSoloOf(t, ck.Config, ck, cfg, devs...)
}

// soloTokens is the room of a solo's cache, and its longest sequence as a rule.
const soloTokens = 160

func newSoloOf(t *testing.T, config []byte, src Source, cfg Config, devs ...device.Device) *solo {
	t.Helper()
	if cfg.PageSize == 0 {
		cfg.PageSize = 4
	}
	mc, err := model.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MaxSeqLen == 0 {
		cfg.MaxSeqLen = min(soloTokens, mc.MaxPositions)
	}
	cfg.NumPages, cfg.MaxRunning, cfg.MaxExtendTokens, cfg.Vocab = (soloTokens+cfg.PageSize-1)/cfg.PageSize, 2, 64, mc.VocabSize
	e, err := New(cfg, mc, src, devs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return &solo{t: t, mc: mc, e: e}
}

// start begins a request whose pages lie in reverse order.
func (r *solo) start(ids []int32) {
	params := core.DefaultSampling()
	r.req = &core.Req{UID: 1, Params: params, IDs: append([]int32(nil), ids...), PromptLen: len(ids), MaxLen: soloTokens}
	for p := r.e.cfg.NumPages - 1; p >= 0; p-- {
		r.req.Pages = append(r.req.Pages, core.Page(p))
	}
}

func (r *solo) batch(end int) *core.Batch {
	b := &core.Batch{Seqs: []core.Seq{{Req: r.req, Start: r.req.DeviceLen, End: end, Sample: true}}, Tokens: end - r.req.DeviceLen}
	r.req.DeviceLen = end
	return b
}

// logits computes the positions up to end and returns the last one's logits.
func (r *solo) logits(end int) []float32 {
	r.t.Helper()
	b := r.batch(end)
	var lists []*ops.List
	var logits ops.Tensor
	for _, rank := range slices.Backward(r.e.ranks) {
		in := rank.sets[r.e.at]
		if err := in.fill(b); err != nil {
			r.t.Fatal(err)
		}
		if err := in.write(rank.dev); err != nil {
			r.t.Fatal(err)
		}
		logits = rank.forward(in) // in the end the first rank's
		if err := in.list.Err(); err != nil {
			r.t.Fatal(err)
		}
		lists = slices.Insert(lists, 0, &in.list)
	}
	if err := r.e.runner.Submit(lists); err != nil {
		r.t.Fatal(err)
	}
	if err := r.e.runner.Wait(); err != nil {
		r.t.Fatal(err)
	}
	out := make([]float32, logits.Cols)
	if err := r.e.ranks[0].dev.Read(ops.Bytes(out), logits.Addr); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// step samples the next token; the sequence's last position is computed again
// after logits.
func (r *solo) step() int32 {
	r.t.Helper()
	r.req.DeviceLen = len(r.req.IDs) - 1
	if err := r.e.Submit(r.batch(len(r.req.IDs))); err != nil {
		r.t.Fatal(err)
	}
	next, err := r.e.Wait()
	if err != nil {
		r.t.Fatal(err)
	}
	r.req.IDs = append(r.req.IDs, next[0])
	return next[0]
}

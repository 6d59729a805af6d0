package engine

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
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
	Prompts []struct {
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

// TestLogits compares logits and greedy tokens in float32 with transformers, on
// every device, for every file form of every tiny model.
func TestLogits(t *testing.T) {
	files, err := filepath.Glob(tiny + "/*/expected.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tiny models: %v", err)
	}
	for _, file := range files {
		var want expected
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(file)
		for _, form := range []string{"", "sharded", "f16.gguf", "f32.gguf"} {
			path := filepath.Join(dir, form)
			if _, err := os.Stat(path); err != nil {
				continue // not every model has every form
			}
			for name, dev := range devices(t) {
				t.Run(filepath.Join(filepath.Base(dir), form, name), func(t *testing.T) { checkModel(t, path, dev, want) })
			}
		}
	}
}

func checkModel(t *testing.T, path string, dev device.Device, want expected) {
	r := newRunner(t, path, dev, ops.F32)
	for i, p := range want.Prompts {
		r.start(p.IDs)
		near(t, "first position", p.First, r.logits(1))
		if len(p.IDs) > 1 {
			near(t, "last position", p.Last, r.logits(len(p.IDs)))
		}
		for step, token := range p.Greedy {
			if got := r.step(); got != token && p.Gaps[step] > 1e-3 {
				t.Fatalf("prompt %d, step %d: token %d, transformers has %d with a gap of %v", i, step, got, token, p.Gaps[step])
			}
		}
	}
}

// near asks for 1e-4 in every logit.
func near(t *testing.T, what string, want, got []float32) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(float64(want[i] - got[i])); !(d <= 1e-4) {
			t.Fatalf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// runner drives an engine for one request, without a scheduler.
type runner struct {
	t   *testing.T
	e   *Engine
	req *core.Req
}

func newRunner(t *testing.T, path string, dev device.Device, dt ops.DType) *runner {
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
	const pages, pageSize = 40, 4
	e, err := New(Config{
		DType: dt, PageSize: pageSize, NumPages: pages, MaxRunning: 2, MaxExtendTokens: 64,
		MaxSeqLen: pages * pageSize, Vocab: mc.VocabSize,
	}, mc, ck, dev)
	if err != nil {
		t.Fatal(err)
	}
	return &runner{t: t, e: e}
}

// start begins a request whose pages lie in reverse order.
func (r *runner) start(ids []int32) {
	params := core.DefaultSampling()
	r.req = &core.Req{UID: 1, Params: params, IDs: append([]int32(nil), ids...), PromptLen: len(ids), MaxLen: 160}
	for p := 39; p >= 0; p-- {
		r.req.Pages = append(r.req.Pages, core.Page(p))
	}
}

func (r *runner) batch(end int) *core.Batch {
	b := &core.Batch{Seqs: []core.Seq{{Req: r.req, Start: r.req.DeviceLen, End: end, Sample: true}}, Tokens: end - r.req.DeviceLen}
	r.req.DeviceLen = end
	return b
}

// logits computes the positions up to end and returns the last one's logits.
func (r *runner) logits(end int) []float32 {
	r.t.Helper()
	in := r.e.sets[r.e.at]
	if err := in.fill(r.batch(end)); err != nil {
		r.t.Fatal(err)
	}
	if err := in.write(r.e.dev); err != nil {
		r.t.Fatal(err)
	}
	logits := r.e.forward(in)
	if err := in.list.Err(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.e.dev.Submit(&in.list); err != nil {
		r.t.Fatal(err)
	}
	if err := r.e.dev.Wait(); err != nil {
		r.t.Fatal(err)
	}
	out := make([]float32, logits.Cols)
	if err := r.e.dev.Read(ops.Bytes(out), logits.Addr); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// step samples the next token; the sequence's last position is computed again
// after logits.
func (r *runner) step() int32 {
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

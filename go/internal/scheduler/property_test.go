package scheduler

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/kvcache"
	"github.com/minisgl/minisgl/go/internal/kvcache/naive"
	"github.com/minisgl/minisgl/go/internal/kvcache/radix"
)

// TestProperties drives the scheduler at random, with up to two batches in
// flight, beside a model that knows only the rules: positions are computed once
// and in order, those of wrong guesses again, a token follows each computed
// sequence, what a grammar forces follows it whether it is sampled or not, every
// accepted request ends exactly once, every page and slot has one owner after every
// step, and all are free at the end.
func TestProperties(t *testing.T) { rapid.Check(t, properties) }

// FuzzProperties lets the fuzzer choose the operations.
func FuzzProperties(f *testing.F) { f.Fuzz(rapid.MakeFuzz(properties)) }

func properties(t *rapid.T) {
	d := newDriver(t)
	d.t.Repeat(map[string]func(*rapid.T){
		"add":      d.add,
		"next":     d.next,
		"complete": d.complete,
		"fail":     d.fail,
		"abort":    d.abort,
		"reset":    func(*rapid.T) { d.s.Reset() },
		"":         d.check,
	})
	d.finish()
}

// driver holds what the model knows.
type driver struct {
	t      *rapid.T
	s      *Scheduler
	cfg    Config
	nextID core.UID
	live   map[core.UID]*core.Req
	at     map[core.UID]int // positions planned so far
	given  map[core.UID][]int32
	flying []*core.Batch
}

func newDriver(t *rapid.T) *driver {
	size := rapid.SampledFrom([]int{1, 2, 16, 256}).Draw(t, "page")
	cfg := Config{
		PageSize: size, NumPages: 40, MaxRunning: rapid.IntRange(1, 6).Draw(t, "running"),
		MaxExtendTokens: rapid.IntRange(1, 64).Draw(t, "extend"), MaxSeqLen: rapid.IntRange(2, 80).Draw(t, "seq"), EOS: []int32{0},
	}
	cfg.JumpForward = rapid.Bool().Draw(t, "jump")
	cfg.Conservative = rapid.Bool().Draw(t, "conservative")
	cfg.Order = rapid.SampledFrom([]Order{FCFS, LPM}).Draw(t, "order")
	cfg.MixedTokens = rapid.SampledFrom([]int{0, 1, 7, 64}).Draw(t, "mixed")
	cfg.Speculation = Speculation{MaxDraft: rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "draft"), Always: rapid.Bool().Draw(t, "always")}
	if !cfg.Speculation.Always {
		cfg.Speculation.StepCost = []float64{1, 1.1, 1.2, 1.9, 2, 2.1, 2.2}
	}
	var cache kvcache.PrefixCache = naive.New()
	if rapid.Bool().Draw(t, "radix") {
		cache = radix.New(size)
	}
	return &driver{t: t, s: New(cfg, cache), cfg: cfg, live: map[core.UID]*core.Req{}, at: map[core.UID]int{}, given: map[core.UID][]int32{}}
}

func (d *driver) add(t *rapid.T) {
	d.nextID++
	r := &core.Req{UID: d.nextID, Params: core.DefaultSampling(), IDs: rapid.SliceOfN(rapid.Int32Range(1, 3), 0, 90).Draw(t, "prompt")}
	r.PromptLen = len(r.IDs)
	r.Params.MaxTokens = rapid.IntRange(1, 100).Draw(t, "max")
	r.Params.IgnoreEOS = rapid.Bool().Draw(t, "ignore_eos")
	if rapid.Bool().Draw(t, "grammar") {
		r.Matcher = counting{}
		r.Params.Logprobs = rapid.Bool().Draw(t, "logprobs")
	}
	fits := r.PromptLen > 0 && r.PromptLen < min(d.cfg.MaxSeqLen, d.cfg.NumPages*d.cfg.PageSize)
	if err := d.s.Add(r); (err == nil) != fits {
		t.Fatalf("prompt of %d tokens: Add gave %v", r.PromptLen, err)
	}
	if fits {
		d.live[r.UID] = r
	}
}

func (d *driver) next(t *rapid.T) {
	if len(d.flying) == 2 {
		return
	}
	b := d.s.Next()
	if b == nil {
		if len(d.flying) == 0 && len(d.live) > 0 {
			t.Fatalf("%d requests are live, none is in flight, and there is nothing to do", len(d.live))
		}
		return
	}
	tokens := 0
	prefill, drafts := 0, 0
	for _, seq := range b.Seqs {
		r := seq.Req
		if at, begun := d.at[r.UID]; seq.Start != at && !d.restarted(r, seq, begun) || seq.End <= seq.Start {
			t.Fatalf("request %d: positions [%d, %d) after %d", r.UID, seq.Start, seq.End, at)
		}
		if want := seq.End >= len(r.IDs); seq.Sample != want {
			t.Fatalf("request %d: [%d, %d) of %d known tokens samples: %v", r.UID, seq.Start, seq.End, len(r.IDs), seq.Sample)
		}
		d.at[r.UID] = seq.End
		tokens += seq.ExtendLen()
		if n := len(seq.Draft); n > 0 {
			if seq.ExtendLen() != 1+n || seq.Start != len(r.IDs)-1 || seq.End >= r.MaxLen {
				t.Fatalf("request %d: [%d, %d) with %d guesses, %d tokens are known, %d allowed", r.UID, seq.Start, seq.End, n, len(r.IDs), r.MaxLen)
			}
			drafts += n
		} else if seq.ExtendLen() > 1 {
			prefill += seq.ExtendLen()
		}
	}
	if tokens != b.Tokens || prefill > d.cfg.MaxExtendTokens || len(b.Seqs) > d.cfg.MaxRunning {
		t.Fatalf("%s batch: %d tokens counted as %d in %d requests", b.Phase, tokens, b.Tokens, len(b.Seqs))
	}
	if drafts > d.cfg.Speculation.MaxDraft {
		t.Fatalf("%d guesses in a batch, more than %d", drafts, d.cfg.Speculation.MaxDraft)
	}
	d.flying = append(d.flying, b)
}

// restarted reports whether a request may begin at a position that does not
// follow the last one: at its first batch, behind what was cached, or after a
// preemption.
func (d *driver) restarted(r *core.Req, seq core.Seq, begun bool) bool {
	aligned := seq.Start%d.cfg.PageSize == 0 && seq.Start < len(r.IDs)
	return aligned && (!begun || d.s.Status().Preemptions > 0)
}

func (d *driver) complete(t *rapid.T) {
	if len(d.flying) == 0 {
		return
	}
	b := d.flying[0]
	d.flying = d.flying[1:]
	var tokens []int32
	known := map[*core.Req]int{} // tokens of requests in the place of one of which the batch samples
	for _, seq := range b.Seqs {
		if seq.Sample && seq.End < len(seq.Req.IDs) {
			known[seq.Req] = len(seq.Req.IDs)
		}
		for i := range seq.Samples() {
			tokens = append(tokens, d.sample(t, seq, i))
		}
	}
	seqs := slices.Clone(b.Seqs)
	d.take(t, d.s.Complete(b, tokens))
	for r, n := range known {
		if len(r.IDs) != n {
			t.Fatalf("request %d: a token counts twice", r.UID)
		}
	}
	for _, seq := range seqs {
		if len(seq.Draft) > 0 {
			d.at[seq.Req.UID] = len(seq.Req.IDs) - 1
		}
	}
}

// sample draws a token of a batch. In the place of one that is known by now, or that
// is forced, the device would give that one.
func (d *driver) sample(t *rapid.T, seq core.Seq, i int) int32 {
	r := seq.Req
	if r.Matcher == nil {
		token := rapid.Int32Range(0, 5).Draw(t, "token")
		if i < len(seq.Draft) && token > 1 {
			token = seq.Draft[i]
		}
		return token
	}
	if seq.End < len(r.IDs) {
		return r.IDs[seq.End]
	}
	if len(r.IDs) > r.PromptLen {
		if token, ok := r.Matcher.Forced(r.IDs[r.PromptLen:]); ok {
			return token
		}
	}
	return rapid.SampledFrom([]int32{0, 1, 2, 102, 201, 205, 299}).Draw(t, "token")
}

func (d *driver) fail(t *rapid.T) {
	if len(d.flying) != 1 || rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
		return
	}
	b := d.flying[0]
	d.flying = nil
	d.take(t, d.s.Fail(b))
}

func (d *driver) abort(t *rapid.T) {
	uid := core.UID(rapid.Uint64Range(1, uint64(d.nextID)+1).Draw(t, "uid"))
	_, live := d.live[uid]
	if got := d.s.Abort(uid); got != live {
		t.Fatalf("Abort(%d) = %v, but live is %v", uid, got, live)
	}
	delete(d.live, uid)
}

// take checks outputs: only live requests speak, and the last word is the last.
func (d *driver) take(t *rapid.T, outs []Output) {
	for _, o := range outs {
		r, ok := d.live[o.Req.UID]
		if !ok {
			t.Fatalf("request %d spoke after its end", o.Req.UID)
		}
		if n := len(r.IDs) - r.PromptLen; n > r.Params.MaxTokens || len(r.IDs) > d.cfg.MaxSeqLen {
			t.Fatalf("request %d has %d tokens of %d", r.UID, n, r.Params.MaxTokens)
		}
		if o.HasToken && !d.follows(r, o.Token) {
			t.Fatalf("request %d: token %d after %v", r.UID, o.Token, d.given[r.UID])
		}
		if o.Finish != "" {
			delete(d.live, o.Req.UID)
		}
	}
}

// follows reports whether a token may come after those that a request gave before.
func (d *driver) follows(r *core.Req, token int32) bool {
	given := d.given[r.UID]
	d.given[r.UID] = append(given, token)
	if r.Matcher == nil || len(given) == 0 {
		return true
	}
	forced, ok := r.Matcher.Forced(given)
	return !ok || token == forced
}

func (d *driver) check(t *rapid.T) {
	if err := d.s.CheckIntegrity(); err != nil {
		t.Fatal(err)
	}
}

// finish lets everything run to its end and checks that nothing is held.
func (d *driver) finish() {
	for step := 0; len(d.live) > 0 || len(d.flying) > 0; step++ {
		d.next(d.t)
		d.complete(d.t)
		if step > 100000 {
			d.t.Fatalf("%d requests never end", len(d.live))
		}
	}
	d.check(d.t)
	d.s.Reset()
	if free := d.s.Status().FreePages; !d.s.Idle() || free != d.cfg.NumPages {
		d.t.Fatalf("at the end %d of %d pages are free, idle: %v", free, d.cfg.NumPages, d.s.Idle())
	}
}

package llm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/engine"
	"github.com/minisgl/minisgl/go/internal/kvcache/naive"
	"github.com/minisgl/minisgl/go/internal/kvcache/radix"
	"github.com/minisgl/minisgl/go/internal/sampler"
	"github.com/minisgl/minisgl/go/internal/scheduler"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// ErrClosed and ErrDraining refuse requests to an engine that was closed, or
// that is finishing what it has.
var (
	ErrClosed   = errors.New("llm: the engine is closed")
	ErrDraining = errors.New("llm: the engine is shutting down and takes no new requests")
)

// LLM is a loaded model and the loop that runs it. It is safe for concurrent
// use.
type LLM struct {
	cfg     Config
	info    Info
	tok     *tokenizer.Tokenizer
	model   *loaded
	eng     *engine.Engine
	longest int // bytes of the longest token
	sched   *scheduler.Scheduler
	nextID  atomic.Uint64
	budget  atomic.Int64 // prompt tokens of a batch, see SetMaxExtendTokens

	commands chan command
	stopped  chan struct{} // closed when the loop has ended
	draining atomic.Bool
	closing  sync.Once
	closeErr error

	sinks    map[core.UID]*request // the loop's; where each request's outputs go
	trace    trace
	hook     ForwardHook // the loop's
	reporter reporter    // the loop's
	lastEnd  time.Time   // the loop's; when the latest batch ended
	mu       sync.Mutex
	stats    Stats // guarded by mu
}

// New resolves the model's name, loads it and starts the engine. The context
// only bounds the loading.
func New(ctx context.Context, cfg Config) (*LLM, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := load(ctx, cfg)
	if err != nil {
		return nil, err
	}
	speculation, err := m.speculation(cfg)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	l := &LLM{
		cfg: cfg, info: m.info, tok: m.tok, model: m, eng: m.eng, longest: m.tok.LongestToken(),
		sched:    newScheduler(cfg, m, speculation),
		commands: make(chan command),
		stopped:  make(chan struct{}),
		sinks:    make(map[core.UID]*request),
	}
	l.budget.Store(int64(cfg.MaxExtendTokens))
	l.publish()
	go l.loop()
	return l, nil
}

// newScheduler sizes the scheduler for a loaded model.
func newScheduler(cfg Config, m *loaded, speculation scheduler.Speculation) *scheduler.Scheduler {
	sc := scheduler.Config{
		PageSize: cfg.PageSize, NumPages: m.info.NumPages, MaxRunning: cfg.MaxRunningReq,
		MaxExtendTokens: cfg.MaxExtendTokens, MaxSeqLen: m.info.MaxSeqLen, EOS: m.eos,
		Conservative: cfg.Admission == "conservative", MixedTokens: *cfg.MixedTokens,
		JumpForward: !cfg.DisableJumpForward, Speculation: speculation,
	}
	if cfg.SchedulePolicy == "lpm" {
		sc.Order = scheduler.LPM
	}
	if cfg.CacheType == "naive" {
		return scheduler.New(sc, naive.New())
	}
	return scheduler.New(sc, radix.New(cfg.PageSize))
}

// Info describes the loaded model.
func (l *LLM) Info() Info { return l.info }

// Tokenizer returns the model's tokenizer; it lives until Close.
func (l *LLM) Tokenizer() *tokenizer.Tokenizer { return l.tok }

// Stats returns a snapshot of the engine.
func (l *LLM) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// MaxExtendTokens returns how many prompt tokens a batch may compute.
func (l *LLM) MaxExtendTokens() int { return int(l.budget.Load()) }

// SetMaxExtendTokens changes how many prompt tokens a batch may compute, from the
// next batch on: 1 to Config.MaxExtendTokens, for which memory was set aside. It
// never waits, so a ForwardHook may call it.
func (l *LLM) SetMaxExtendTokens(n int) error {
	if n < 1 || n > l.cfg.MaxExtendTokens {
		return core.Invalid("max_extend_tokens", "must be 1 to %d, which the engine was made for, got %d", l.cfg.MaxExtendTokens, n)
	}
	l.budget.Store(int64(n))
	return nil
}

// EncodeChat renders messages with the model's chat template and encodes the
// result. A template that refuses the messages, or a model without one, gives an
// InvalidError.
func (l *LLM) EncodeChat(msgs []tokenizer.Message, o tokenizer.TemplateOptions) ([]int32, error) {
	if !l.tok.HasChatTemplate() {
		return nil, core.Invalid("messages", "the model %s has no chat template; send a prompt instead", l.info.Model)
	}
	text, err := l.tok.RenderChat(msgs, o)
	if err != nil {
		return nil, core.Invalid("messages", "%v", err)
	}
	if err := l.checkText("messages", text); err != nil {
		return nil, err
	}
	ids, err := l.tok.Encode(text, false) // the template writes special tokens itself
	if err != nil {
		return nil, core.Invalid("messages", "%v", err)
	}
	return ids, nil
}

// checkText refuses a text that is too long for any tokens that it may have:
// encoding it would cost a second and 100 MB for each of its megabytes.
func (l *LLM) checkText(field, text string) error {
	if most := l.info.MaxSeqLen * l.longest; len(text) > most {
		return core.Invalid(field, "has %d bytes, but prompt and output together may have at most %d tokens, which are %d bytes or fewer", len(text), l.info.MaxSeqLen, most)
	}
	return nil
}

// prepare checks a request and turns it into the scheduler's form.
func (l *LLM) prepare(req Request) (*core.Req, error) {
	if l.draining.Load() {
		return nil, ErrDraining
	}
	if err := req.Params.Validate(); err != nil {
		return nil, err
	}
	ids := slices.Clone(req.TokenIDs)
	var err error
	if req.TokenIDs == nil {
		if err = l.checkText("prompt", req.Text); err != nil {
			return nil, err
		}
		if ids, err = l.tok.Encode(req.Text, true); err != nil {
			return nil, core.Invalid("prompt", "%v", err)
		}
	}
	if err := l.checkPrompt(ids); err != nil {
		return nil, err
	}
	if err := l.checkTokens(req.Params, ids); err != nil {
		return nil, err
	}
	uid := core.UID(l.nextID.Add(1))
	params := req.Params
	if params.Seed == nil {
		seed := sampler.Seed(*l.cfg.Seed, uid)
		params.Seed = &seed
	}
	r := &core.Req{UID: uid, Params: params, IDs: ids, PromptLen: len(ids)}
	if params.Grammar.Kind != "" {
		if r.Matcher, err = l.model.matcher(params.Grammar); err != nil {
			return nil, err
		}
	}
	if params.MinTokens > 0 {
		r.Ends = slices.DeleteFunc(slices.Concat(l.model.eos, req.StopTokenIDs), func(id int32) bool { return !l.isToken(id) })
	}
	return r, nil
}

// isToken reports whether an id can be sampled: a model may embed more ids than
// its tokenizer has tokens.
func (l *LLM) isToken(id int32) bool { return id >= 0 && int(id) < l.model.ids }

// checkTokens checks what sampling parameters say of tokens.
func (l *LLM) checkTokens(p SamplingParams, ids []int32) error {
	for _, b := range p.LogitBias {
		if !l.isToken(b.Token) {
			return core.Invalid("logit_bias", "has token %d, but the tokens are 0 to %d", b.Token, l.model.ids-1)
		}
	}
	if p.TopLogprobs > l.model.ids {
		return core.Invalid("top_logprobs", "must be at most %d, the number of tokens, got %d", l.model.ids, p.TopLogprobs)
	}
	if p.PromptLogprobs == nil {
		return nil
	}
	if *p.PromptLogprobs >= len(ids) {
		return core.Invalid("prompt_logprobs", "must be below %d, the number of the prompt's tokens, got %d", len(ids), *p.PromptLogprobs)
	}
	if i := slices.IndexFunc(ids, func(id int32) bool { return !l.isToken(id) }); i >= 0 {
		return core.Invalid("prompt", "token %d is %d, which has no log-probability: the tokens are 0 to %d", i, ids[i], l.model.ids-1)
	}
	return nil
}

func (l *LLM) checkPrompt(ids []int32) error {
	if len(ids) == 0 {
		return core.Invalid("prompt", "is empty; it needs at least one token")
	}
	if len(ids) >= l.info.MaxSeqLen {
		return core.Invalid("prompt", "has %d tokens, but prompt and output together may have at most %d", len(ids), l.info.MaxSeqLen)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= l.info.VocabSize {
			return core.Invalid("prompt", "token %d is %d, but the vocabulary has ids 0 to %d", i, id, l.info.VocabSize-1)
		}
	}
	return nil
}

// Drain refuses new requests and waits until the running ones have ended; when
// ctx ends first, they are aborted.
func (l *LLM) Drain(ctx context.Context) error {
	l.draining.Store(true)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := l.live()
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.send(command{kind: abortAll})
			return fmt.Errorf("llm: %d requests were aborted: %w", left, ctx.Err())
		}
	}
}

// live is the number of requests that have not ended; those sent before are
// counted.
func (l *LLM) live() int {
	count := make(chan int, 1)
	if !l.send(command{kind: countLive, count: count}) {
		return 0
	}
	return <-count
}

// Close aborts what runs, ends the loop and frees the device's memory. A second
// call does nothing.
func (l *LLM) Close() error {
	l.closing.Do(func() {
		l.send(command{kind: quit})
		<-l.stopped
		l.closeErr = l.model.close()
	})
	return l.closeErr
}

// CheckIntegrity proves that each KV page and each slot has exactly one owner.
// It is for tests and for whoever looks for a leak; it takes time in proportion
// to the number of pages, between two batches.
func (l *LLM) CheckIntegrity() error {
	reply := make(chan error, 1)
	if !l.send(command{kind: checkIntegrity, reply: reply}) {
		return ErrClosed
	}
	return <-reply
}

package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine plays a script for each request.
type fakeEngine struct {
	script    []llm.Event
	scripts   [][]llm.Event // if not nil, one for each request, in order
	cold      bool          // the next request is the warm-up
	step      chan struct{} // if not nil, each event waits for a value
	streamErr error
	encodeErr error
	flushErr  error
	promptLen int
	defaults  llm.SamplingDefaults
	algorithm string // of speculation

	mu       sync.Mutex
	requests []llm.Request
	messages []tokenizer.Message
	options  tokenizer.TemplateOptions

	live     atomic.Int32 // requests that run
	aborted  atomic.Int32 // requests that ended before their script
	waiting  atomic.Int32 // what Stats says
	closed   atomic.Bool
	draining atomic.Bool
	cutOff   chan struct{} // closed when draining has lasted too long
}

func newFake(script ...llm.Event) *fakeEngine {
	return &fakeEngine{script: script, promptLen: 3, cutOff: make(chan struct{})}
}

func (e *fakeEngine) Info() llm.Info {
	return llm.Info{Model: "org/fake", Path: "/models/fake", Architecture: "FakeForCausalLM", DType: "float32", KVCacheDType: "bfloat16", Device: "none", MaxSeqLen: 64, NumPages: 100, PageSize: 4, Defaults: e.defaults, SpeculativeAlgorithm: e.algorithm, SpeculativeDraftTokens: len(e.algorithm)}
}

func (e *fakeEngine) EncodeChat(msgs []tokenizer.Message, o tokenizer.TemplateOptions) ([]int32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.messages, e.options = msgs, o
	return make([]int32, e.promptLen), e.encodeErr
}

func (e *fakeEngine) Stream(ctx context.Context, req llm.Request) (Stream, error) {
	if e.streamErr != nil {
		return nil, e.streamErr
	}
	if e.draining.Load() {
		return nil, llm.ErrDraining
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cold {
		e.cold = false
		return &fakeStream{engine: newFake(), ctx: ctx, events: []llm.Event{atEOS(1)}}, nil
	}
	e.requests = append(e.requests, req)
	e.live.Add(1)
	script := e.script
	if e.scripts != nil {
		script = e.scripts[len(e.requests)-1]
	}
	return &fakeStream{engine: e, ctx: ctx, events: script}, nil
}

// Encode makes a token of each byte.
func (e *fakeEngine) Encode(text string, _ bool) ([]int32, error) {
	var ids []int32
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, e.encodeErr
}

func (e *fakeEngine) Decode(ids []int32, _ bool) (string, error) {
	text := ""
	for _, id := range ids {
		text += string(id)
	}
	return text, nil
}

// StartTrace does nothing.
func (e *fakeEngine) StartTrace() {}

// StopTrace returns a trace of two batches.
func (e *fakeEngine) StopTrace() []llm.BatchTrace {
	begin := time.Unix(1, 0)
	return []llm.BatchTrace{
		{Start: begin, End: begin.Add(time.Millisecond), Prefill: true, Requests: 1, Tokens: 3, Sampled: 1},
		{Start: begin.Add(2 * time.Millisecond), End: begin.Add(3 * time.Millisecond), Requests: 1, Tokens: 1, Sampled: 1},
	}
}

// TokenBytes of a token is the byte that it is.
func (e *fakeEngine) TokenBytes(id int32) []byte { return []byte{byte(id)} }

// CheckGrammar takes all but one.
func (e *fakeEngine) CheckGrammar(g llm.Grammar) error {
	if g.Text == "wrong" {
		return &llm.InvalidError{Field: g.Name(), Message: "is wrong"}
	}
	return nil
}

func (e *fakeEngine) Stats() llm.Stats {
	s := llm.Stats{
		Running: int(e.live.Load()), Waiting: int(e.waiting.Load()), TotalPages: 100, FreePages: 50, EvictablePages: 25, CachedPages: 30, CacheNodes: 7,
		PromptTokens: 30, CachedTokens: 10, RequestSteps: 4, JumpedTokens: 9,
	}
	if e.algorithm != "" {
		s.DraftTokens, s.AcceptedTokens = 8, 6
	}
	return s
}

func (e *fakeEngine) FlushCache() (int, error) { return 25, e.flushErr }

func (e *fakeEngine) Drain(ctx context.Context) error {
	e.draining.Store(true)
	for e.live.Load() > 0 {
		select {
		case <-ctx.Done():
			close(e.cutOff)
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (e *fakeEngine) Close() error {
	e.closed.Store(true)
	return nil
}

type fakeStream struct {
	engine *fakeEngine
	ctx    context.Context
	events []llm.Event
	once   sync.Once
}

func (s *fakeStream) Next(ctx context.Context) (llm.Event, error) {
	if len(s.events) == 0 {
		return llm.Event{}, io.EOF
	}
	if s.engine.step != nil {
		select {
		case <-s.engine.step:
		case <-s.engine.cutOff:
			s.end(true)
			return llm.Event{Finish: llm.FinishAbort}, nil
		case <-ctx.Done():
			return llm.Event{}, ctx.Err()
		}
	}
	ev := s.events[0]
	s.events = s.events[1:]
	if ev.Finish != "" {
		s.end(false)
	}
	return ev, nil
}

func (s *fakeStream) Close() { s.end(true) }

func (s *fakeStream) end(aborted bool) {
	s.once.Do(func() {
		if aborted {
			s.engine.aborted.Add(1)
		}
		s.engine.live.Add(-1)
	})
}

// token is an event that brings a token, the n-th of the answer.
func token(text string, n int) llm.Event {
	return llm.Event{HasToken: true, Text: text, Usage: llm.Usage{PromptTokens: 3, CachedTokens: 1, CompletionTokens: n}}
}

func finished(ev llm.Event, reason llm.FinishReason) llm.Event {
	ev.Finish = reason
	return ev
}

// atEOS ends a request at an end-of-sequence token after n tokens.
func atEOS(n int) llm.Event {
	return llm.Event{Finish: llm.FinishStop, Usage: llm.Usage{PromptTokens: 3, CompletionTokens: n}}
}

func newServer(t *testing.T, e *fakeEngine, cfg Config) *Server {
	t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := New(cfg)
	s.newID = func() string { return "0" }
	if e != nil {
		s.SetEngine(e)
	}
	return s
}

// do sends a request without a network.
func do(s *Server, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

const chatPath = "/v1/chat/completions"

// listen serves on a port of this machine until the test ends. The test waits for the handlers of
// WebSockets, too, of which httptest knows nothing: they write to the test's log.
func listen(t *testing.T, s *Server) (url string, client *http.Client) {
	t.Helper()
	var handlers sync.WaitGroup
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		hs.Close()
		handlers.Wait()
	})
	return hs.URL, hs.Client()
}

// eventually waits for what goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

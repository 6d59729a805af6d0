// Package server serves an engine over HTTP, in the shape of OpenAI's API.
//
// # Streams
//
// A chat that streams gives one server-sent event for each generated token, even
// while the token's text is held back because a character is incomplete: such an
// event has the content "". The role is in the first event's delta. One more
// event then brings the finish_reason, one more the usage if the caller asked for
// it, and "[DONE]" ends the stream. Clients that count events so count tokens.
//
// The response's status is sent with the first token, so a request that fails
// before it gets a plain error response. A failure after it is one event that
// holds an error object, and the stream ends without finish_reason and [DONE].
//
// When a client goes away its request leaves the engine. A client that doesn't
// read for Config.WriteTimeout counts as gone.
package server

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// Engine is what the server needs of an engine. *llm.LLM is one through LLM.
type Engine interface {
	Stream(ctx context.Context, req llm.Request) (Stream, error)
	EncodeChat(msgs []tokenizer.Message, o tokenizer.TemplateOptions) ([]int32, error)
	Info() llm.Info
	Drain(ctx context.Context) error
	Close() error
}

// Stream is a running request; see llm.Stream.
type Stream interface {
	Next(ctx context.Context) (llm.Event, error)
	Close()
}

// LLM makes an Engine of an *llm.LLM.
type LLM struct{ *llm.LLM }

// Stream starts a request.
func (l LLM) Stream(ctx context.Context, req llm.Request) (Stream, error) {
	s, err := l.LLM.Stream(ctx, req)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Config holds the server's options. A zero field means its default, except for
// DrainTimeout.
type Config struct {
	DrainTimeout time.Duration // how long running requests may take to end at shutdown
	WriteTimeout time.Duration // how long a client may leave a write waiting; default 60 s
	ReadTimeout  time.Duration // how long a request's body may take; default 60 s
	MaxBody      int64         // bytes of a request's body; default 32 MiB
	Logger       *slog.Logger  // default: slog.Default()
}

const (
	defaultTimeout = 60 * time.Second
	defaultMaxBody = 32 << 20
)

// state is where the server is in its life.
type state int32

const (
	loading state = iota
	ready
	draining
	failed // the engine is gone
)

func (s state) String() string {
	return [...]string{"loading", "ok", "draining", "failed"}[s]
}

// Server answers HTTP requests. Until it has an engine, it says that it is
// loading.
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	state   atomic.Int32
	engine  Engine // set before state becomes ready
	handler http.Handler
	newID   func() string
}

// New returns a server without an engine; see Run.
func New(cfg Config) *Server {
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = defaultTimeout
	}
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = defaultTimeout
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{cfg: cfg, log: cfg.Logger, started: time.Now(), newID: randomID}
	s.handler = s.observe(cleanPath(s.gate(s.routes())))
	return s
}

// routes lists all endpoints. No other path and method does anything.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, m methods) {
		mux.Handle(pattern, s.allow(m))
	}
	route("/health", methods{http.MethodGet: s.health})
	route("/v1", methods{http.MethodGet: s.status, http.MethodPost: s.status, http.MethodOptions: s.status})
	route("/v1/models", methods{http.MethodGet: s.models})
	route("/v1/models/{id...}", methods{http.MethodGet: s.model})
	route("/v1/chat/completions", methods{http.MethodPost: s.chatCompletions})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, openai.Errorf(http.StatusNotFound, "there is no %s here", r.URL.Path))
	})
	return mux
}

// SetEngine makes the server ready. It may be called once, and not together
// with Run.
func (s *Server) SetEngine(e Engine) {
	s.engine = e
	s.state.CompareAndSwap(int32(loading), int32(ready))
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) now() state { return state(s.state.Load()) }

// gate lets only /health through before there is an engine.
func (s *Server) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.now() == loading && r.URL.Path != "/health" {
			s.fail(w, openai.Errorf(http.StatusServiceUnavailable, "the model is still loading").WithCode("loading"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cleanPath repairs what comes of joining a base URL and a path carelessly, as
// in /v1//models/, without the redirect that http.ServeMux answers with: a
// redirect turns a POST into a GET.
func cleanPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cleaned := path.Clean("/" + r.URL.Path); cleaned != r.URL.Path {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = cleaned, ""
		}
		next.ServeHTTP(w, r)
	})
}

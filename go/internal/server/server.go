// Package server serves an engine over HTTP, in the shape of OpenAI's API and of
// sglang's own.
//
// # Streams
//
// A chat or a completion that streams gives, for each choice, one server-sent
// event for each generated token, even while the token's text is held back because
// a character, or what may be a stop string, is incomplete: such an event has the
// content "". The role is in the first event's delta. One more
// event then brings the finish_reason; after all choices one more the usage if the
// caller asked for it, and "[DONE]" ends the stream. Clients that count events so
// count tokens. Where a token ends one part of an answer and begins another
// (reasoning, content, the beginning of a call, arguments), each has an event.
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/minisgl/minisgl/go/internal/tracing"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// Engine is what the server needs of an engine. *llm.LLM is one through LLM.
type Engine interface {
	Stream(ctx context.Context, req llm.Request) (Stream, error)
	EncodeChat(msgs []tokenizer.Message, o tokenizer.TemplateOptions) ([]int32, error)
	Encode(text string, addSpecial bool) ([]int32, error)
	Decode(ids []int32, skipSpecial bool) (string, error)
	TokenBytes(id int32) []byte
	CheckGrammar(g llm.Grammar) error
	Info() llm.Info
	Stats() llm.Stats
	FlushCache() (pages int, err error)
	StartTrace()
	StopTrace() []llm.BatchTrace
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

// Encode turns a text into token ids.
func (l LLM) Encode(text string, addSpecial bool) ([]int32, error) {
	return l.Tokenizer().Encode(text, addSpecial)
}

// Decode turns token ids into text.
func (l LLM) Decode(ids []int32, skipSpecial bool) (string, error) {
	return l.Tokenizer().Decode(ids, skipSpecial)
}

// TokenBytes returns what a token alone stands for.
func (l LLM) TokenBytes(id int32) []byte { return l.Tokenizer().TokenBytes(id) }

// Config holds the server's options. A zero field means its default, except for
// DrainTimeout.
type Config struct {
	DrainTimeout time.Duration // how long running requests may take to end at shutdown
	WriteTimeout time.Duration // how long a client may leave a write waiting; default 60 s
	ReadTimeout  time.Duration // how long a request's body may take; default 60 s
	MaxBody      int64         // bytes of a request's body; default 32 MiB
	Logger       *slog.Logger  // default: slog.Default()

	ModelName   string // what the model is called by; default: the engine's name for it
	StrictModel bool   // refuse requests for a model of another name
	APIKey      string // that requests must bring; default: none
	CORSOrigin  string // whose pages may read the answers; "*": all; default: none
	MaxRunning  int    // requests that the engine runs at once
	MaxQueued   int    // requests that may wait beside them; default: no limit
	Version     string // that /server_info reports

	ToolCallParser  string // of chatparse.ToolFormats, or auto: calls in chats become tool_calls; default: none
	ReasoningParser string // of chatparse.ReasoningFormats, or auto: reasoning in chats becomes reasoning_content; default: none

	RequestTimeout    time.Duration // how long a request for text may take; default: no limit
	CertFile, KeyFile string        // PEM files to serve HTTPS with; default: HTTP
	TracesEndpoint    string        // URL of an OpenTelemetry collector; default: none
	ProfileDir        string        // where /start_profile writes; default: os.TempDir()

	Flags map[string]string // options that the operator has set, for /ws/stats to show; no secrets
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
	engine  Engine   // set before state becomes ready
	metrics *metrics // likewise
	tracer  *tracing.Tracer
	profile profile
	live    atomic.Int64 // requests that were admitted and have not ended
	running sync.Map     // of *member, to abort them
	stats   statsRing
	sockets sockets
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
	s.handler = s.observe(s.allowOrigin(cleanPath(s.authorize(s.gate(s.routes())))))
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
	route("/v1/chat/completions", methods{http.MethodPost: s.answering(s.chatCompletions)})
	route("/v1/completions", methods{http.MethodPost: s.answering(s.completions)})
	route("/generate", methods{http.MethodPost: s.answering(s.generate)})
	route("/abort_request", methods{http.MethodPost: s.generating(s.abortRequest)})
	route("/tokenize", methods{http.MethodPost: s.generating(s.tokenize)})
	route("/detokenize", methods{http.MethodPost: s.generating(s.detokenize)})
	route("/health_generate", methods{http.MethodGet: s.healthGenerate})
	route("/server_info", methods{http.MethodGet: s.serverInfo})
	route("/get_server_info", methods{http.MethodGet: s.serverInfo})
	route("/model_info", methods{http.MethodGet: s.modelInfo})
	route("/get_model_info", methods{http.MethodGet: s.modelInfo})
	route("/flush_cache", methods{http.MethodGet: s.flushCache, http.MethodPost: s.flushCache})
	route("/reset_prefix_cache", methods{http.MethodPost: s.flushCache}) // vLLM's name for it
	route("/start_profile", methods{http.MethodGet: s.startProfile, http.MethodPost: s.startProfile})
	route("/stop_profile", methods{http.MethodGet: s.stopProfile, http.MethodPost: s.stopProfile})
	route("/{$}", methods{http.MethodGet: s.dashboard})
	route(dashboardPath, methods{http.MethodGet: s.dashboard})
	route("/ws/generate", methods{http.MethodGet: s.socketGenerate})
	route("/ws/stats", methods{http.MethodGet: s.socketStats})
	route("/metrics", methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) { s.metrics.handler.ServeHTTP(w, r) }})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, openai.Errorf(http.StatusNotFound, "there is no %s here", r.URL.Path))
	})
	return mux
}

// SetEngine makes the server ready. It may be called once, and not together
// with Run.
func (s *Server) SetEngine(e Engine) {
	s.engine = e
	s.detectParsers()
	s.metrics = newMetrics(e, s.modelName())
	s.state.CompareAndSwap(int32(loading), int32(ready))
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// modelName is the name that the model is listed under.
func (s *Server) modelName() string {
	if s.cfg.ModelName != "" {
		return s.cfg.ModelName
	}
	return s.engine.Info().Model
}

func (s *Server) now() state { return state(s.state.Load()) }

// gate lets only /health and the dashboard through before there is an engine.
func (s *Server) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.now() == loading && r.URL.Path != "/health" && !isDashboard(r.URL.Path) {
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

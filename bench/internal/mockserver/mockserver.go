// Package mockserver is an OpenAI chat server with known delays and known
// faults, to check load generators against.
package mockserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const maxBody = 1 << 20

// Usage says when the server reports token counts to a client that asks for them.
type Usage int

// The ways to report usage.
const (
	UsageContinuous Usage = iota // on each chunk, and in a closing chunk
	UsageFinal                   // in a closing chunk only, with choices []
	UsageNever
)

// Config describes the server. The first chunk of an answer goes out TTFT after
// the request, whatever its size; each later one of k tokens goes out k·ITL after
// the one before.
type Config struct {
	Model          string
	TTFT, ITL      time.Duration
	TokensPerChunk int // 0 means 1
	PromptTokens   int
	Usage          Usage
	RoleChunk      bool // open with a chunk that holds only the role
	Reasoning      bool // send text in the reasoning channel
	EmptyText      int  // the first so many chunks have empty text
	TextBytes      int  // pad the text of each token to this size
	EOSAfter       int  // stop after so many tokens though more were asked

	Newline  string // ends lines; "" means LF
	NoSpace  bool   // no space after "data:"
	Comments bool   // a comment before each event
	OneByte  bool   // each byte in a write of its own

	FailEvery  int    // each so-manieth request is refused
	FailStatus int    // with this status; 0 means 500
	Refuse     string // refuse bodies that contain this, with status 400 and a message that names it
	OneJSON    bool   // answer with a document instead of a stream

	// After this many tokens (0: never) the answer goes wrong.
	ErrorAfter, CutAfter, StallAfter, GarbageAfter int
	NoDone, NoFinish                               bool // leave out the end of the protocol
}

// Server is an http.Handler.
type Server struct {
	cfg Config

	mu       sync.Mutex
	bodies   []string
	inFlight int
	peak     int
}

// New returns a server.
func New(cfg Config) *Server {
	if cfg.Model == "" {
		cfg.Model = "mock"
	}
	if cfg.TokensPerChunk <= 0 {
		cfg.TokensPerChunk = 1
	}
	if cfg.Newline == "" {
		cfg.Newline = "\n"
	}
	if cfg.FailStatus == 0 {
		cfg.FailStatus = http.StatusInternalServerError
	}
	return &Server{cfg: cfg}
}

// Bodies returns the bodies of the chat requests so far.
func (s *Server) Bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

// PeakInFlight returns the most chat requests that were in progress at a time.
func (s *Server) PeakInFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// ServeHTTP serves /v1/models and /v1/chat/completions.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model"}]}`, s.cfg.Model)
	case "/v1/chat/completions":
		s.chat(w, r)
	default:
		http.NotFound(w, r)
	}
}

// enter counts a request and returns its number, from 1.
func (s *Server) enter(body string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, body)
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
	return len(s.bodies)
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
}

type chatRequest struct {
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	StreamOptions       struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return
	}
	number := s.enter(string(body))
	defer s.leave()
	var req chatRequest
	switch {
	case json.Unmarshal(body, &req) != nil:
		refuse(w, http.StatusBadRequest, "the body is not JSON")
	case s.cfg.FailEvery > 0 && number%s.cfg.FailEvery == 0:
		refuse(w, s.cfg.FailStatus, "planned failure")
	case s.cfg.Refuse != "" && strings.Contains(string(body), s.cfg.Refuse):
		refuse(w, http.StatusBadRequest, "unknown parameter: "+s.cfg.Refuse)
	case s.cfg.OneJSON:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"hello"}}]}`)
	default:
		a := &answer{cfg: s.cfg, w: w, r: r, begin: begin, usage: s.usage(req)}
		a.stream(max(req.MaxTokens, req.MaxCompletionTokens))
	}
}

// usage is what the server has to offer and the client asks for.
func (s *Server) usage(req chatRequest) Usage {
	switch {
	case !req.StreamOptions.IncludeUsage:
		return UsageNever
	case !req.StreamOptions.ContinuousUsageStats:
		return max(s.cfg.Usage, UsageFinal)
	}
	return s.cfg.Usage
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"message":%q,"type":"mock"}}`, message)
}

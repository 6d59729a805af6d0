// Package mockserver is an inference server with known delays and known faults,
// to check load generators against. It speaks OpenAI's chat and completions,
// sglang's /generate and its control endpoints, minisgl's WebSocket, and Triton's
// generate_stream.
package mockserver

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
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
	Jitter         float64 // delays of an answer are this much longer or shorter: the standard deviation, as a share
	Seed           uint64  // of the jitter; the same seed and request give the same
	TokensPerChunk int     // 0 means 1
	PromptTokens   int     // of a prompt that is text; token ids are counted
	CachedTokens   int     // reported of each prompt
	Slots          int     // requests served at a time, others wait; 0 means all
	Usage          Usage
	RoleChunk      bool // open with a chunk that holds only the role
	Reasoning      bool // send text in the reasoning channel
	EmptyText      int  // the first so many chunks have empty text
	TextBytes      int  // pad the text of each token to this size
	EOSAfter       int  // stop after so many tokens though more were asked; prompt i of a batch after i more

	BatchSpread   time.Duration // in a batch, each prompt's answer begins so long after the one before
	TokenCapacity int           // reported of the KV cache; 0 means 1,000,000

	Newline  string // ends lines; "" means LF
	NoSpace  bool   // no space after "data:"
	Comments bool   // a comment before each event
	OneByte  bool   // each byte in a write of its own

	Forget bool      // keep no bodies, headers and calls
	Record io.Writer // gets the body of each generation request, a line each; nil: nothing does

	FailEvery  int    // each so-manieth request is refused
	FailStatus int    // with this status; 0 means 500
	Refuse     string // refuse bodies that contain this, with status 400 and a message that names it
	OneJSON    bool   // answer with a document instead of a stream

	// After this many tokens (0: never) the answer goes wrong.
	ErrorAfter, CutAfter, StallAfter, GarbageAfter int
	ErrorEvent                                     bool          // the error comes as "event: error"
	NoDone, NoFinish                               bool          // leave out the end of the protocol
	EndDelay                                       time.Duration // from the last token to the end of the protocol
}

// Server is an http.Handler.
type Server struct {
	cfg Config

	slots    chan struct{}
	mu       sync.Mutex
	bodies   []string
	calls    []string
	headers  []http.Header
	requests int
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
	s := &Server{cfg: cfg}
	if cfg.Slots > 0 {
		s.slots = make(chan struct{}, cfg.Slots)
	}
	return s
}

// Calls returns the control requests so far, as "METHOD /path?query body".
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

// Headers returns the headers of the generation requests so far.
func (s *Server) Headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]http.Header(nil), s.headers...)
}

// Bodies returns the bodies of the generation requests so far.
func (s *Server) Bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

// PeakInFlight returns the most generation requests that were in progress at a time.
func (s *Server) PeakInFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// ServeHTTP serves the endpoints of all APIs.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		writeJSON(w, fmt.Sprintf(`{"object":"list","data":[{"id":%q,"object":"model"}]}`, s.cfg.Model))
	case "/v1/chat/completions":
		s.generate(w, r, chatAPI)
	case "/v1/completions":
		s.generate(w, r, completionsAPI)
	case "/ws/generate":
		s.socket(w, r)
	case "/generate":
		s.generate(w, r, generateAPI)
	case "/v2/models/ensemble/generate_stream":
		s.generate(w, r, tritonAPI)
	default:
		s.control(w, r)
	}
}

// enter counts a request and returns its number, from 1.
func (s *Server) enter(body string, header http.Header) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.Forget {
		s.bodies = append(s.bodies, body)
		s.headers = append(s.headers, header.Clone())
	}
	if s.cfg.Record != nil {
		_, _ = fmt.Fprintln(s.cfg.Record, strings.ReplaceAll(body, "\n", " ")) // a full disk ends no answer
	}
	s.requests++
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
	return s.requests
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
}

// request is the union of what the APIs ask for.
type request struct {
	Prompt              json.RawMessage `json:"prompt"`
	InputIDs            json.RawMessage `json:"input_ids"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	Sampling            struct {
		MaxNewTokens int `json:"max_new_tokens"`
	} `json:"sampling_params"`
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
}

// promptTokens counts token ids; text has as many as configured.
func (r *request) promptTokens(text int) int {
	for _, field := range []json.RawMessage{r.Prompt, r.InputIDs} {
		var ids []int
		if json.Unmarshal(field, &ids) == nil && len(ids) > 0 {
			return len(ids)
		}
	}
	return text
}

// batch returns the lengths of the prompts of a request that has several; nil if
// it has one.
func (r *request) batch() []int {
	for _, field := range []json.RawMessage{r.Prompt, r.InputIDs} {
		var prompts [][]int
		if json.Unmarshal(field, &prompts) == nil && len(prompts) > 0 {
			lens := make([]int, len(prompts))
			for i := range prompts {
				lens[i] = len(prompts[i])
			}
			return lens
		}
	}
	return nil
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request, api api) {
	begin := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return
	}
	number := s.enter(string(body), r.Header)
	defer s.leave()
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			begin = time.Now()
		case <-r.Context().Done():
			return
		}
	}
	var req request
	switch {
	case json.Unmarshal(body, &req) != nil:
		refuse(w, http.StatusBadRequest, "the body is not JSON")
	case s.cfg.FailEvery > 0 && number%s.cfg.FailEvery == 0:
		refuse(w, s.cfg.FailStatus, "planned failure")
	case s.cfg.Refuse != "" && strings.Contains(string(body), s.cfg.Refuse):
		refuse(w, http.StatusBadRequest, "unknown parameter: "+s.cfg.Refuse)
	case s.cfg.OneJSON:
		writeJSON(w, `{"choices":[{"message":{"role":"assistant","content":"hello"}}]}`)
	default:
		a := &answer{cfg: s.cfg, api: api, w: w, r: r, begin: begin, usage: s.usage(req, api), prompt: req.promptTokens(s.cfg.PromptTokens), pace: s.pace(body)}
		want := max(req.MaxTokens, req.MaxCompletionTokens, req.Sampling.MaxNewTokens)
		switch batch := req.batch(); {
		case req.Stream && batch != nil:
			a.streamBatch(batch, want)
		case req.Stream:
			a.stream(want)
		default:
			a.document(want)
		}
	}
}

// pace is by how much the delays of an answer differ from the planned ones.
func (s *Server) pace(body []byte) float64 {
	if s.cfg.Jitter == 0 {
		return 1
	}
	hash := fnv.New64a()
	_, _ = hash.Write(body) // never fails
	rng := rand.New(rand.NewPCG(s.cfg.Seed, hash.Sum64()))
	return max(1+s.cfg.Jitter*rng.NormFloat64(), 0)
}

// usage is what the server has to offer and the client asks for. sglang's own
// API always counts, Triton's never does.
func (s *Server) usage(req request, api api) Usage {
	switch {
	case api == tritonAPI:
		return UsageNever
	case api == generateAPI || !req.Stream:
		return s.cfg.Usage
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

func writeJSON(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, text)
}

package loadgen

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/minisgl/minisgl/bench/internal/record"
)

// API is the way a server takes prompts.
type API int

// The APIs.
const (
	Chat        API = iota // OpenAI's /v1/chat/completions
	Completions            // OpenAI's /v1/completions
	Generate               // sglang's /generate
	TensorRT               // Triton's /v2/models/ensemble/generate_stream
	ChatSocket             // minisgl's /ws/generate, with the requests and chunks of Chat
)

// Path returns the path of the API's endpoint.
func (a API) Path() string {
	switch a {
	case Completions:
		return "/v1/completions"
	case Generate:
		return "/generate"
	case TensorRT:
		return "/v2/models/ensemble/generate_stream"
	case ChatSocket:
		return "/ws/generate"
	}
	return "/v1/chat/completions"
}

// Chats reports whether the API takes conversations.
func (a API) Chats() bool { return a == Chat || a == ChatSocket }

// Request is one prompt. The first of Messages, IDs and Text that is set is sent.
type Request struct {
	Text      string
	IDs       []int32         // Completions and Generate only
	Messages  json.RawMessage // a conversation; APIs that take Chats only
	InputLen  int             // tokens of the prompt; 0 if not known
	MaxTokens int
	Extra     map[string]json.RawMessage // added to the body, after those of Options
	Header    map[string]string
}

// TextRequests returns one request per prompt.
func TextRequests(prompts []string, maxTokens int) []Request {
	requests := make([]Request, len(prompts))
	for i, text := range prompts {
		requests[i] = Request{Text: text, MaxTokens: maxTokens}
	}
	return requests
}

// Options are what all requests of a run have in common.
type Options struct {
	Model       string
	NoStream    bool // ask for one document; then only whole latencies are known
	KeepEOS     bool // let the model end an answer early
	Temperature float64
	TopP        float64                    // 0 or 1: not sent
	Extra       map[string]json.RawMessage // added to the body; replaces fields of the same name
}

// Target sends requests to one API of a server.
type Target struct {
	http     *HTTP
	api      API
	url      string
	opts     Options
	requests []Request
	usage    *usageLevel
	bodies   [][]byte // of requests, for the level of usage at bodiesAt; nil entries are encoded when sent
	bodiesAt int32
}

// NewTarget returns a backend that sends the requests by index. base is a
// server's address as ParseBase returns it.
func NewTarget(client *HTTP, api API, base string, opts Options, requests []Request) *Target {
	return &Target{http: client, api: api, url: base + api.Path(), opts: opts, requests: requests, usage: new(usageLevel)}
}

// WithRequests returns a backend like t with other requests. The two share what
// was learned about the server.
func (t *Target) WithRequests(requests []Request) *Target {
	other := *t
	other.requests, other.bodies = requests, nil
	return &other
}

// usageLevel is how much of stream_options the server takes; it only rises.
type usageLevel struct{ atomic.Int32 }

const (
	usageContinuous int32 = iota
	usageAtEnd
	usageNone
)

// Exchange sends request index. If the server refuses stream_options, it asks
// again with less of it, and so do all later requests.
func (t *Target) Exchange(ctx context.Context, index int) *Exchange {
	if index < 0 || index >= len(t.requests) {
		return new(Exchange).fail(record.BadJSON, "there is no request %d: there are %d", index, len(t.requests))
	}
	req := t.requests[index]
	for {
		level := t.usage.Load()
		body, err := t.encoded(index, level)
		if err != nil {
			return new(Exchange).fail(record.BadJSON, "encoding the request: %v", err)
		}
		send := t.http.Do
		if t.api == ChatSocket {
			send = t.http.DoSocket
		}
		x := send(ctx, Call{URL: t.url, Body: body, Header: req.Header, Document: t.opts.NoStream})
		next, refused := refusedUsage(x, level)
		if !refused {
			return x
		}
		t.usage.CompareAndSwap(level, next)
	}
}

// Prepare encodes the first requests, up to count, ahead of Exchange, and opens
// connections for those that are due at once. A request that cannot be encoded
// fails when it is sent.
func (t *Target) Prepare(ctx context.Context, count, atOnce int) {
	if t.api != ChatSocket {
		t.http.OpenAhead(ctx, t.url, atOnce)
	}
	t.bodies = make([][]byte, min(count, len(t.requests)))
	t.bodiesAt = t.usage.Load()
	for i := range t.bodies {
		if body, err := t.body(t.requests[i], t.bodiesAt); err == nil {
			t.bodies[i] = body
		}
	}
}

func (t *Target) encoded(index int, level int32) ([]byte, error) {
	if index < len(t.bodies) && t.bodies[index] != nil && level == t.bodiesAt {
		return t.bodies[index], nil
	}
	return t.body(t.requests[index], level)
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats,omitempty"`
}

type openAIRequest struct {
	Model         string         `json:"model"`
	Messages      any            `json:"messages,omitempty"`
	Prompt        any            `json:"prompt,omitempty"`
	MaxTokens     int            `json:"max_tokens"`
	Temperature   float64        `json:"temperature"`
	TopP          float64        `json:"top_p,omitempty"`
	IgnoreEOS     bool           `json:"ignore_eos,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
}

type samplingParams struct {
	Temperature  float64 `json:"temperature"`
	TopP         float64 `json:"top_p,omitempty"`
	MaxNewTokens int     `json:"max_new_tokens"`
	IgnoreEOS    bool    `json:"ignore_eos,omitempty"`
}

type generateRequest struct {
	Text     string         `json:"text,omitempty"`
	InputIDs []int32        `json:"input_ids,omitempty"`
	Sampling samplingParams `json:"sampling_params"`
	Stream   bool           `json:"stream"`
}

// tensorRTRequest asks Triton's ensemble for exactly MaxTokens tokens by an
// end-of-text id that no vocabulary has.
type tensorRTRequest struct {
	AccumulateTokens bool    `json:"accumulate_tokens"`
	TextInput        string  `json:"text_input"`
	Temperature      float64 `json:"temperature"`
	TopP             float64 `json:"top_p"`
	MaxTokens        int     `json:"max_tokens"`
	Stream           bool    `json:"stream"`
	MinLength        int     `json:"min_length,omitempty"`
	EndID            int     `json:"end_id,omitempty"`
}

const noEndID = 1048576

func (t *Target) body(req Request, level int32) ([]byte, error) {
	data, err := json.Marshal(t.payload(req, level))
	if err != nil || len(req.Extra)+len(t.opts.Extra) == 0 {
		return data, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for _, extra := range []map[string]json.RawMessage{t.opts.Extra, req.Extra} {
		for key, value := range extra {
			fields[key] = value
		}
	}
	return json.Marshal(fields)
}

func (t *Target) payload(req Request, level int32) any {
	topP := t.opts.TopP
	if topP == 1 {
		topP = 0
	}
	switch t.api {
	case Generate:
		sampling := samplingParams{Temperature: t.opts.Temperature, TopP: topP, MaxNewTokens: req.MaxTokens, IgnoreEOS: !t.opts.KeepEOS}
		return generateRequest{Text: req.Text, InputIDs: req.IDs, Sampling: sampling, Stream: !t.opts.NoStream}
	case TensorRT:
		r := tensorRTRequest{AccumulateTokens: true, TextInput: req.Text, Temperature: max(t.opts.Temperature, 1e-6), TopP: 1, MaxTokens: req.MaxTokens, Stream: true}
		if !t.opts.KeepEOS {
			r.MinLength, r.EndID = req.MaxTokens, noEndID
		}
		return r
	}
	r := openAIRequest{
		Model: t.opts.Model, MaxTokens: req.MaxTokens, Temperature: t.opts.Temperature, TopP: topP,
		IgnoreEOS: !t.opts.KeepEOS, Stream: !t.opts.NoStream,
	}
	if level != usageNone && r.Stream {
		r.StreamOptions = &streamOptions{IncludeUsage: true, ContinuousUsageStats: level == usageContinuous}
	}
	switch {
	case t.api.Chats() && req.Messages != nil:
		r.Messages = req.Messages
	case t.api.Chats():
		r.Messages = []message{{Role: "user", Content: req.Text}}
	case req.IDs != nil:
		r.Prompt = req.IDs
	default:
		r.Prompt = req.Text
	}
	return r
}

// refusedUsage reports whether x is the answer of a server that does not know
// the stream_options sent at this level, and the level to try next.
func refusedUsage(x *Exchange, level int32) (next int32, refused bool) {
	bad := x.Status == http.StatusBadRequest || x.Status == http.StatusUnprocessableEntity
	switch {
	case !bad || level == usageNone:
		return level, false
	case level == usageContinuous && strings.Contains(x.ErrBody, "continuous_usage_stats"):
		return usageAtEnd, true
	case strings.Contains(x.ErrBody, "stream_options"):
		return usageNone, true
	}
	return level, false
}

// Check returns an error if the API cannot carry a request of this kind.
func (a API) Check(req Request) error {
	switch {
	case req.Messages != nil && !a.Chats():
		return fmt.Errorf("loadgen: conversations need a chat API, not %s", a.Path())
	case req.IDs != nil && a != Completions && a != Generate:
		return fmt.Errorf("loadgen: %s takes no token ids", a.Path())
	}
	return nil
}

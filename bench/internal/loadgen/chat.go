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

// Chat sends streaming requests to an OpenAI chat completions endpoint.
type Chat struct {
	http      *HTTP
	url       string
	model     string
	prompts   []string
	maxTokens int
	usage     *usageLevel
}

// NewChat returns a backend whose request i is one user message, prompts[i],
// answered with maxTokens tokens. base is a server's address as ParseBase returns it.
func NewChat(client *HTTP, base, model string, prompts []string, maxTokens int) *Chat {
	return &Chat{http: client, url: base + "/v1/chat/completions", model: model, prompts: prompts, maxTokens: maxTokens, usage: new(usageLevel)}
}

// WithPrompts returns a backend like c with other prompts and another length.
// The two share what was learned about the server.
func (c *Chat) WithPrompts(prompts []string, maxTokens int) *Chat {
	other := *c
	other.prompts, other.maxTokens = prompts, maxTokens
	return &other
}

// usageLevel is how much of stream_options the server takes; it only rises.
type usageLevel struct{ atomic.Int32 }

const (
	usageContinuous int32 = iota
	usageAtEnd
	usageNone
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats,omitempty"`
}

type chatRequest struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	MaxTokens     int            `json:"max_tokens"`
	Temperature   float64        `json:"temperature"`
	IgnoreEOS     bool           `json:"ignore_eos"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
}

// Exchange sends prompt index. If the server refuses stream_options, it asks
// again with less of it, and so do all later requests.
func (c *Chat) Exchange(ctx context.Context, index int) *Exchange {
	for {
		level := c.usage.Load()
		body, err := c.body(index, level)
		if err != nil {
			return new(Exchange).fail(record.BadJSON, "encoding request %d: %v", index, err)
		}
		x := c.http.Post(ctx, c.url, body)
		next, refused := refusedUsage(x, level)
		if !refused {
			return x
		}
		c.usage.CompareAndSwap(level, next)
	}
}

func (c *Chat) body(index int, level int32) ([]byte, error) {
	if index < 0 || index >= len(c.prompts) {
		return nil, fmt.Errorf("there are %d prompts", len(c.prompts))
	}
	req := chatRequest{
		Model:     c.model,
		Messages:  []message{{Role: "user", Content: c.prompts[index]}},
		MaxTokens: c.maxTokens,
		IgnoreEOS: true,
		Stream:    true,
	}
	if level != usageNone {
		req.StreamOptions = &streamOptions{IncludeUsage: true, ContinuousUsageStats: level == usageContinuous}
	}
	return json.Marshal(req)
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

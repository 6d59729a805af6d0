package mockserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// answer streams one reply.
type answer struct {
	cfg   Config
	w     http.ResponseWriter
	r     *http.Request
	begin time.Time
	usage Usage
}

type delta struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning *string `json:"reasoning_content,omitempty"`
}

type choice struct {
	Index        int     `json:"index"`
	Delta        delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

type usageCount struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

type chunk struct {
	ID      string      `json:"id"`
	Object  string      `json:"object"`
	Model   string      `json:"model"`
	Choices []choice    `json:"choices"`
	Usage   *usageCount `json:"usage,omitempty"`
}

func (a *answer) stream(want int) {
	a.w.Header().Set("Content-Type", "text/event-stream")
	total, finish := want, "length"
	if a.cfg.EOSAfter > 0 && a.cfg.EOSAfter < want {
		total, finish = a.cfg.EOSAfter, "stop"
	}
	if a.cfg.RoleChunk {
		empty := ""
		a.send(a.chunk(0, choice{Delta: delta{Role: "assistant", Content: &empty}}))
	}
	for sent, n := 0, 0; sent < total; n++ {
		tokens := min(a.cfg.TokensPerChunk, total-sent)
		due := a.cfg.TTFT
		if n > 0 {
			due += time.Duration(sent+tokens-a.cfg.TokensPerChunk) * a.cfg.ITL
		}
		if !a.wait(due) || !a.fault(sent) {
			return
		}
		a.send(a.chunk(sent+tokens, choice{Delta: a.text(sent, tokens, n)}))
		sent += tokens
	}
	if a.fault(total) {
		a.end(total, finish)
	}
}

func (a *answer) end(total int, finish string) {
	if !a.cfg.NoFinish {
		a.send(a.chunk(total, choice{FinishReason: &finish}))
	}
	if a.usage != UsageNever {
		closing := a.chunk(total)
		closing.Choices = []choice{}
		closing.Usage = a.count(total)
		a.send(closing)
	}
	if !a.cfg.NoDone {
		a.write("[DONE]")
	}
}

// text is the delta of chunk n, which brings tokens first to first+tokens-1.
func (a *answer) text(first, tokens, n int) delta {
	var text strings.Builder
	for i := first; i < first+tokens && n >= a.cfg.EmptyText; i++ {
		token := fmt.Sprintf(" t%d", i)
		text.WriteString(token + strings.Repeat("x", max(a.cfg.TextBytes-len(token), 0)))
	}
	s := text.String()
	if a.cfg.Reasoning {
		return delta{Reasoning: &s}
	}
	return delta{Content: &s}
}

func (a *answer) chunk(tokens int, choices ...choice) *chunk {
	c := &chunk{ID: "chatcmpl-mock", Object: "chat.completion.chunk", Model: a.cfg.Model, Choices: choices}
	if a.usage == UsageContinuous {
		c.Usage = a.count(tokens)
	}
	return c
}

func (a *answer) count(tokens int) *usageCount {
	return &usageCount{PromptTokens: a.cfg.PromptTokens, CompletionTokens: tokens, TotalTokens: a.cfg.PromptTokens + tokens}
}

// fault does what is planned after so many tokens; false means the answer is over.
func (a *answer) fault(sent int) bool {
	switch {
	case sent == 0:
		return true
	case a.cfg.ErrorAfter > 0 && sent >= a.cfg.ErrorAfter:
		a.write(`{"error":{"message":"planned stream error","type":"mock","code":500}}`)
		return false
	case a.cfg.CutAfter > 0 && sent >= a.cfg.CutAfter:
		panic(http.ErrAbortHandler)
	case a.cfg.StallAfter > 0 && sent >= a.cfg.StallAfter:
		<-a.r.Context().Done()
		return false
	case a.cfg.GarbageAfter > 0 && sent >= a.cfg.GarbageAfter:
		a.write(`{"choices":[{"delta":{"cont`)
	}
	return true
}

// wait sleeps until due after the request came; false means the client left.
func (a *answer) wait(due time.Duration) bool {
	timer := time.NewTimer(time.Until(a.begin.Add(due)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.r.Context().Done():
		return false
	}
}

func (a *answer) send(c *chunk) {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // the types above always encode
	}
	a.write(string(data))
}

// write sends one event. A failed write means the client left, which the next
// wait notices.
func (a *answer) write(data string) {
	field := "data: "
	if a.cfg.NoSpace {
		field = "data:"
	}
	event := field + data + a.cfg.Newline + a.cfg.Newline
	if a.cfg.Comments {
		event = ": ping" + a.cfg.Newline + a.cfg.Newline + event
	}
	flusher := http.NewResponseController(a.w)
	if !a.cfg.OneByte {
		_, _ = a.w.Write([]byte(event))
		_ = flusher.Flush()
		return
	}
	for i := range len(event) {
		_, _ = a.w.Write([]byte{event[i]})
		_ = flusher.Flush()
	}
}

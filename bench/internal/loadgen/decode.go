package loadgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/go/openai"
)

// maxUsage bounds the token count that a server may claim for one answer.
const maxUsage = 1 << 20

// chatChunk is the part of a chunk that matters here. It is looser than the
// server's own types on purpose: other servers differ in details.
type chatChunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Delta struct {
			Content          string            `json:"content"`
			ReasoningContent string            `json:"reasoning_content"`
			Reasoning        string            `json:"reasoning"`
			Refusal          string            `json:"refusal"`
			ToolCalls        []json.RawMessage `json:"tool_calls"`
			Role             string            `json:"role"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     *int `json:"prompt_tokens"`
		CompletionTokens *int `json:"completion_tokens"`
	} `json:"usage"`
}

// piece is what a chunk says about tokens.
type piece struct {
	at     time.Duration
	text   bool // carries text of any channel, or a tool call
	role   bool
	choice bool // belongs to the answer; false for a chunk that only carries usage
	usage  int  // completion tokens so far; -1 if not said
}

// Decode fills rec from a chat answer.
func (c *Chat) Decode(x *Exchange, begin time.Time, rec *record.Record) {
	rec.MaxTokens = c.maxTokens
	rec.Kind, rec.Err, rec.Status = x.Kind, x.Err, x.Status
	rec.Done = x.Done.Sub(begin)
	if len(x.Events) > 0 {
		rec.FirstByte = x.Events[0].At.Sub(begin)
	}
	pieces := make([]piece, 0, len(x.Events))
	var text strings.Builder
	for _, ev := range x.Events {
		p, ok := decodeEvent(ev, rec, &text)
		if !ok {
			break
		}
		p.at = ev.At.Sub(begin)
		pieces = append(pieces, p)
	}
	rec.Text = text.String()
	countTokens(pieces, rec)
	checkEnd(x, rec)
}

// decodeEvent reads one event; false means that it ends the answer in failure.
func decodeEvent(ev openai.Event, rec *record.Record, text *strings.Builder) (piece, bool) {
	p := piece{usage: -1}
	var chunk chatChunk
	if err := json.Unmarshal([]byte(ev.Data), &chunk); err != nil {
		switch {
		case ev.Name == "error":
			rec.Kind, rec.Err = record.StreamError, snippet(ev.Data)
		case rec.OK():
			rec.Kind, rec.Err = record.BadJSON, err.Error()+": "+snippet(ev.Data)
		}
		return p, false
	}
	if ev.Name == "error" || len(chunk.Error) > 0 && !bytes.Equal(chunk.Error, []byte("null")) {
		rec.Kind, rec.Err = record.StreamError, snippet(errorText(ev.Data, chunk.Error))
		return p, false
	}
	for _, choice := range chunk.Choices {
		d := choice.Delta
		before := text.Len()
		for _, s := range []string{d.ReasoningContent, d.Reasoning, d.Content, d.Refusal} {
			text.WriteString(s)
		}
		p.choice = true
		p.role = p.role || d.Role != ""
		p.text = p.text || text.Len() > before || len(d.ToolCalls) > 0
		if choice.FinishReason != "" {
			rec.Finish = choice.FinishReason
		}
	}
	return p, readUsage(chunk, &p, rec)
}

func readUsage(chunk chatChunk, p *piece, rec *record.Record) bool {
	if chunk.Usage == nil {
		return true
	}
	if n := chunk.Usage.PromptTokens; n != nil {
		rec.PromptTokens = max(*n, 0)
	}
	if n := chunk.Usage.CompletionTokens; n != nil {
		if *n < 0 || *n > maxUsage {
			rec.Kind, rec.Err = record.BadJSON, fmt.Sprintf("usage.completion_tokens is %d, want 0 to %d", *n, maxUsage)
			return false
		}
		p.usage = *n
	}
	return true
}

// errorText returns the message of an error object, or the whole event.
func errorText(data string, object json.RawMessage) string {
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(object, &e) == nil && e.Message != "" {
		return e.Message
	}
	return data
}

// checkEnd fails an answer that did not end as the protocol asks.
func checkEnd(x *Exchange, rec *record.Record) {
	switch {
	case !rec.OK():
	case rec.Finish == "abort" || rec.Finish == "error":
		rec.Kind, rec.Err = record.StreamError, "finish_reason is "+rec.Finish
	case !x.Finish:
		rec.Kind, rec.Err = record.Truncated, "the stream ended without [DONE]"
	case rec.Finish == "":
		rec.Kind, rec.Err = record.Truncated, "the stream ended without a finish_reason"
	}
}

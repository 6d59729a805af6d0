package server

import (
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// chatAnswer builds what a chat is answered with.
type chatAnswer struct {
	req     *openai.ChatRequest
	id      string
	created int64
	first   bool // no chunk has been made yet
}

// response is the answer in one piece; last is the request's last event.
func (a *chatAnswer) response(text string, last llm.Event) *openai.ChatResponse {
	return &openai.ChatResponse{
		ID: a.id, Object: openai.ObjectChat, Created: a.created, Model: a.req.Model,
		Choices: []openai.ChatChoice{{
			Message:      openai.ChatMessage{Role: "assistant", Content: text},
			FinishReason: string(last.Finish),
		}},
		Usage: usageOf(last),
	}
}

// chunks are an event's part of the answer: one for its token, one if it ends the
// request, one more if the usage was asked for.
func (a *chatAnswer) chunks(ev llm.Event) []any {
	var chunks []any
	var rest *string // text that no token of this event stands for
	switch {
	case ev.HasToken:
		chunks = append(chunks, a.chunk(ev, &ev.Text, nil))
	case ev.Text != "":
		rest = &ev.Text
	}
	if ev.Finish == "" {
		return chunks
	}
	reason := string(ev.Finish)
	chunks = append(chunks, a.chunk(ev, rest, &reason))
	if a.req.IncludeUsage {
		total := a.head()
		total.Choices = []openai.ChunkChoice{}
		chunks = append(chunks, openai.ChatUsageChunk{ChatChunk: total, Usage: usageOf(ev)})
	}
	return chunks
}

func (a *chatAnswer) head() openai.ChatChunk {
	return openai.ChatChunk{ID: a.id, Object: openai.ObjectChatChunk, Created: a.created, Model: a.req.Model}
}

func (a *chatAnswer) chunk(ev llm.Event, content, reason *string) any {
	delta := openai.Delta{Content: content}
	if a.first {
		delta.Role = "assistant"
		a.first = false
	}
	chunk := a.head()
	chunk.Choices = []openai.ChunkChoice{{Delta: delta, FinishReason: reason}}
	switch {
	case a.req.ContinuousUsage:
		chunk.Usage = usageOf(ev)
	case a.req.IncludeUsage:
		return openai.ChatUsageChunk{ChatChunk: chunk}
	}
	return chunk
}

func usageOf(ev llm.Event) *openai.Usage {
	return &openai.Usage{
		PromptTokens:        ev.Usage.PromptTokens,
		CompletionTokens:    ev.Usage.CompletionTokens,
		TotalTokens:         ev.Usage.PromptTokens + ev.Usage.CompletionTokens,
		PromptTokensDetails: &openai.PromptDetails{CachedTokens: ev.Usage.CachedTokens},
	}
}

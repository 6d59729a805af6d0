package server

import (
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// chatAnswer builds what a chat is answered with.
type chatAnswer struct {
	tally
	req     *openai.ChatRequest
	id      string
	created int64
}

func (a *chatAnswer) document() any {
	doc := &openai.ChatResponse{ID: a.id, Object: openai.ObjectChat, Created: a.created, Model: a.req.Model, Usage: a.usage()}
	for i := range a.choices {
		c := &a.choices[i]
		doc.Choices = append(doc.Choices, openai.ChatChoice{
			Index: i, Message: openai.ChatMessage{Role: "assistant", Content: c.text.String()}, FinishReason: string(c.last.Finish),
		})
	}
	return doc
}

// events are one for the event's token, one if it ends the choice, one more at
// the end of all if the usage was asked for.
func (a *chatAnswer) events(i int, ev llm.Event) []any {
	role := ""
	if a.choices[i].events == 1 {
		role = "assistant"
	}
	var chunks []any
	var rest *string // text that no token of this event stands for
	switch {
	case ev.HasToken:
		chunks = append(chunks, a.chunk(i, openai.Delta{Role: role, Content: &ev.Text}, nil))
		role = ""
	case ev.Text != "":
		rest = &ev.Text
	}
	if ev.Finish == "" {
		return chunks
	}
	reason := string(ev.Finish)
	chunks = append(chunks, a.chunk(i, openai.Delta{Role: role, Content: rest}, &reason))
	if a.req.IncludeUsage && a.left == 0 {
		total := a.head()
		total.Choices = []openai.ChunkChoice{}
		chunks = append(chunks, openai.ChatUsageChunk{ChatChunk: total, Usage: a.usage()})
	}
	return chunks
}

func (a *chatAnswer) head() openai.ChatChunk {
	return openai.ChatChunk{ID: a.id, Object: openai.ObjectChatChunk, Created: a.created, Model: a.req.Model}
}

func (a *chatAnswer) chunk(i int, delta openai.Delta, reason *string) any {
	chunk := a.head()
	chunk.Choices = []openai.ChunkChoice{{Index: i, Delta: delta, FinishReason: reason}}
	switch {
	case a.req.ContinuousUsage:
		chunk.Usage = a.usage()
	case a.req.IncludeUsage:
		return openai.ChatUsageChunk{ChatChunk: chunk}
	}
	return chunk
}

// textAnswer builds what a completion is answered with.
type textAnswer struct {
	tally
	req     *openai.CompletionRequest
	echo    []string // what comes before the texts of each prompt; nil if nothing does
	id      string
	created int64
}

func (a *textAnswer) prefix(i int) string {
	if a.echo == nil {
		return ""
	}
	return a.echo[i/a.n]
}

func (a *textAnswer) head() openai.TextResponse {
	return openai.TextResponse{ID: a.id, Object: openai.ObjectText, Created: a.created, Model: a.req.Model}
}

func (a *textAnswer) document() any {
	doc := a.head()
	doc.Usage = a.usage()
	for i := range a.choices {
		c := &a.choices[i]
		reason := string(c.last.Finish)
		doc.Choices = append(doc.Choices, openai.TextChoice{Index: i, Text: a.prefix(i) + c.text.String(), FinishReason: &reason})
	}
	return doc
}

// events follow the rules of chatAnswer.events.
func (a *textAnswer) events(i int, ev llm.Event) []any {
	text := ev.Text
	if a.choices[i].events == 1 {
		text = a.prefix(i) + text
	}
	var chunks []any
	if ev.HasToken {
		chunks = append(chunks, a.chunk(i, text, nil))
		text = ""
	}
	if ev.Finish == "" {
		return chunks
	}
	reason := string(ev.Finish)
	chunks = append(chunks, a.chunk(i, text, &reason))
	if a.req.IncludeUsage && a.left == 0 {
		total := a.head()
		total.Choices = []openai.TextChoice{}
		chunks = append(chunks, openai.TextUsageChunk{TextResponse: total, Usage: a.usage()})
	}
	return chunks
}

func (a *textAnswer) chunk(i int, text string, reason *string) any {
	chunk := a.head()
	chunk.Choices = []openai.TextChoice{{Index: i, Text: text, FinishReason: reason}}
	switch {
	case a.req.ContinuousUsage:
		chunk.Usage = a.usage()
	case a.req.IncludeUsage:
		return openai.TextUsageChunk{TextResponse: chunk}
	}
	return chunk
}

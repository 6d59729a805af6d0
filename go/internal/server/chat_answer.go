package server

import (
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// chatAnswer builds what a chat is answered with.
type chatAnswer struct {
	tally
	req     *openai.ChatRequest
	names   tokenNames
	id      string
	created int64

	messages []message // of the choices
}

func (a *chatAnswer) add(i int, ev llm.Event) {
	a.tally.add(i, ev)
	a.messages[i].add(ev)
}

func (a *chatAnswer) document() any {
	doc := &openai.ChatResponse{ID: a.id, Object: openai.ObjectChat, Created: a.created, Model: a.req.Model, Usage: a.usage()}
	for i := range a.choices {
		c := &a.choices[i]
		doc.Choices = append(doc.Choices, openai.ChatChoice{
			Index: i, Message: a.messages[i].document(), Logprobs: a.logprobs(c.logprobs), FinishReason: a.messages[i].finish(c.last.Finish),
		})
	}
	return doc
}

// events are one for the event's token, or one for each part that it brings, those
// for the rest of the text and the end if it ends the choice, one more at the end of
// all if the usage was asked for.
func (a *chatAnswer) events(i int, ev llm.Event) []any {
	var chunks []any
	logprobs := a.logprobs(tokenOf(ev))
	for _, delta := range a.messages[i].token {
		chunks = append(chunks, a.chunk(i, delta, logprobs, nil))
		logprobs = nil
	}
	if ev.Finish == "" {
		return chunks
	}
	rest, last := a.messages[i].rest, len(a.messages[i].rest)-1
	for _, delta := range rest[:last] {
		chunks = append(chunks, a.chunk(i, delta, nil, nil))
	}
	reason := a.messages[i].finish(ev.Finish)
	chunks = append(chunks, a.chunk(i, rest[last], nil, &reason))
	if a.req.IncludeUsage && a.left == 0 {
		total := a.head()
		total.Choices = []openai.ChunkChoice{}
		chunks = append(chunks, openai.ChatUsageChunk{ChatChunk: total, Usage: a.usage()})
	}
	return chunks
}

func (a *chatAnswer) finish() string { return a.messages[0].finish(a.choices[0].last.Finish) }

// usage also tells of the reasoning, where that is told apart.
func (a *chatAnswer) usage() *openai.Usage {
	u := a.tally.usage()
	for i := range a.messages {
		if a.messages[i].parser.Reasons() {
			if u.CompletionTokensDetails == nil {
				u.CompletionTokensDetails = &openai.CompletionDetails{}
			}
			u.CompletionTokensDetails.ReasoningTokens += a.messages[i].thoughts
		}
	}
	return u
}

func (a *chatAnswer) head() openai.ChatChunk {
	return openai.ChatChunk{ID: a.id, Object: openai.ObjectChatChunk, Created: a.created, Model: a.req.Model}
}

// logprobs is nil if they were not asked for.
func (a *chatAnswer) logprobs(list []llm.TokenLogprob) *openai.ChatLogprobs {
	if !a.req.Sampling.Logprobs {
		return nil
	}
	return a.names.chat(list)
}

func (a *chatAnswer) chunk(i int, delta openai.Delta, logprobs *openai.ChatLogprobs, reason *string) any {
	chunk := a.head()
	chunk.Choices = []openai.ChunkChoice{{Index: i, Delta: delta, Logprobs: logprobs, FinishReason: reason}}
	switch {
	case a.req.ContinuousUsage:
		chunk.Usage = a.usage()
	case a.req.IncludeUsage:
		return openai.ChatUsageChunk{ChatChunk: chunk}
	}
	return chunk
}

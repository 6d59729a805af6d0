package server

import (
	"strings"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// message is the assistant's message of a choice, while it comes.
type message struct {
	parser *chatparse.Parser
	newID  func() string

	reasoning, content strings.Builder
	calls              []openai.ToolCall
	arguments          []*strings.Builder // of the calls
	thoughts           int                // tokens of reasoning

	begun bool           // the first delta is out
	token []openai.Delta // what the last event's token added
	rest  []openai.Delta // what came with the end and is of no token; at the end at least one
}

func newMessages(n int, o chatparse.Options, newID func() string) []message {
	list := make([]message, n)
	for i := range list {
		list[i] = message{parser: chatparse.New(o), newID: newID}
	}
	return list
}

// add takes an event of the engine.
func (m *message) add(ev llm.Event) {
	m.token, m.rest = nil, nil
	if ev.HasToken && m.parser.Thinking() {
		m.thoughts++
	}
	parts := m.parser.Push(ev.Text)
	if ev.HasToken {
		if len(parts) == 0 { // the token's text isn't certain yet
			parts = []chatparse.Event{{Kind: chatparse.Content}}
		}
		m.token, parts = m.take(nil, parts), nil
	}
	if ev.Finish == "" {
		return
	}
	m.rest = m.take(m.take(nil, parts), m.parser.Close())
	if len(m.rest) == 0 {
		m.rest = m.first(nil, openai.Delta{})
	}
}

// take appends the deltas that parts of the answer are.
func (m *message) take(deltas []openai.Delta, parts []chatparse.Event) []openai.Delta {
	for _, part := range parts {
		deltas = m.first(deltas, m.delta(part))
	}
	return deltas
}

// first appends a delta, which has the role if it is the first of all.
func (m *message) first(deltas []openai.Delta, d openai.Delta) []openai.Delta {
	if !m.begun {
		d.Role, m.begun = "assistant", true
	}
	return append(deltas, d)
}

func (m *message) delta(part chatparse.Event) openai.Delta {
	last := len(m.calls) - 1
	switch part.Kind {
	case chatparse.Reasoning:
		m.reasoning.WriteString(part.Text)
		return openai.Delta{ReasoningContent: part.Text}
	case chatparse.CallBegin:
		c := openai.ToolCall{ID: m.newID(), Type: "function", Function: openai.FunctionCall{Name: part.Text}}
		m.calls, m.arguments = append(m.calls, c), append(m.arguments, &strings.Builder{})
		return callDelta(openai.ToolCallDelta{Index: last + 1, ID: c.ID, Type: c.Type, Function: openai.FunctionDelta{Name: part.Text}})
	case chatparse.Arguments:
		m.arguments[last].WriteString(part.Text)
		return callDelta(openai.ToolCallDelta{Index: last, Function: openai.FunctionDelta{Arguments: part.Text}})
	}
	m.content.WriteString(part.Text)
	return openai.Delta{Content: &part.Text}
}

func callDelta(d openai.ToolCallDelta) openai.Delta {
	return openai.Delta{ToolCalls: []openai.ToolCallDelta{d}}
}

// document is the message in one piece.
func (m *message) document() openai.ChatMessage {
	doc := openai.ChatMessage{Role: "assistant", ReasoningContent: m.reasoning.String()}
	if text := m.content.String(); text != "" || len(m.calls) == 0 {
		doc.Content = &text
	}
	for i, c := range m.calls {
		c.Function.Arguments = m.arguments[i].String()
		doc.ToolCalls = append(doc.ToolCalls, c)
	}
	return doc
}

// finish is OpenAI's reason for an end.
func (m *message) finish(reason llm.FinishReason) string {
	if reason == llm.FinishStop && len(m.calls) > 0 {
		return "tool_calls"
	}
	return string(reason)
}

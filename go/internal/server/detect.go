package server

import (
	"encoding/json"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// detectParsers puts the parsers that the model's chat template shows in the place
// of auto.
func (s *Server) detectParsers() {
	user := tokenizer.Message{Role: "user", Content: "u"}
	answer := tokenizer.Message{Role: "assistant", Content: "a", Extra: map[string]any{"reasoning_content": "r"}}
	call := tokenizer.Message{Role: "assistant", Extra: map[string]any{
		"tool_calls": json.RawMessage(`[{"id":"callabcde","type":"function","function":{"name":"f","arguments":{"x":1}}}]`),
	}}
	if s.cfg.ToolCallParser == chatparse.Auto {
		s.cfg.ToolCallParser = chatparse.DetectTools(s.rendered(false, user, call))
		s.log.Info("calls of tools, by the chat template", "parser", orNone(s.cfg.ToolCallParser))
	}
	if s.cfg.ReasoningParser == chatparse.Auto {
		s.cfg.ReasoningParser = chatparse.DetectReasoning(s.rendered(false, user, answer), s.rendered(true, user))
		s.log.Info("reasoning, by the chat template", "parser", orNone(s.cfg.ReasoningParser))
	}
}

// rendered returns the prompt that a conversation gives; "" if the template does
// not know such.
func (s *Server) rendered(open bool, msgs ...tokenizer.Message) string {
	ids, err := s.engine.EncodeChat(msgs, tokenizer.TemplateOptions{AddGenerationPrompt: open})
	if err != nil {
		return ""
	}
	text, err := s.engine.Decode(ids, false)
	if err != nil {
		return ""
	}
	return text
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return name
}

package server

import (
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/openai"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// chatCompletions reads a request to /v1/chat/completions.
func (s *Server) chatCompletions(body []byte) (*task, error) {
	req, err := openai.ParseChat(body, s.sampling(openai.DefaultSampling()))
	if err != nil {
		return nil, err
	}
	if req.Model, err = s.called(req.Model); err != nil {
		return nil, err
	}
	ids, param, err := s.encodeChat(req)
	if err != nil {
		return nil, err
	}
	o, err := s.parserOptions(req, ids)
	if err != nil {
		return nil, err
	}
	a := &chatAnswer{
		tally: newTally(req.N, req.N), req: req, names: s.engine.TokenBytes, id: "chatcmpl-" + s.newID(), created: time.Now().Unix(),
		messages: newMessages(req.N, o, s.newCallID),
	}
	st, err := s.stagesOf(req, o)
	if err != nil {
		return nil, err
	}
	jobs := jobsOf(&req.Generation, ids, param, a.id)
	for i := range jobs {
		jobs[i].req.KeepSpecial = chatparse.SpecialTokens(o.Tools)
		jobs[i].stages = st
	}
	return &task{jobs: jobs, stream: req.Stream, answer: a, model: req.Model}, nil
}

// parserOptions say how the answers to a prompt are split.
func (s *Server) parserOptions(req *openai.ChatRequest, ids []int32) (chatparse.Options, error) {
	o := chatparse.Options{Single: !req.ParallelCalls, Whole: !req.Reasoning.Stream}
	switch {
	case req.MustCall:
		o.Tools = chatparse.JSONCalls
	case len(req.Tools) > 0:
		o.Tools = s.cfg.ToolCallParser
	}
	for _, tool := range req.Tools {
		o.Functions = append(o.Functions, tool.Name)
	}
	if s.cfg.ReasoningParser == "" {
		return o, nil
	}
	if req.Reasoning.Separate {
		o.Reasoning = s.cfg.ReasoningParser
	}
	const tail = 16 // tokens, of which the last ones may be a mark
	text, err := s.engine.Decode(ids[max(len(ids)-tail, 0):], false)
	if err != nil {
		return o, openai.Invalid("messages", "%v", err)
	}
	o.Prompt = text
	return o, nil
}

// newCallID returns a name for a call. Mistral's templates take none but of nine
// letters and digits.
func (s *Server) newCallID() string {
	if s.cfg.ToolCallParser == "mistral" {
		return rand.Text()[:9]
	}
	return "call_" + s.newID()
}

// encodeChat also returns the path of what it encoded.
func (s *Server) encodeChat(req *openai.ChatRequest) (ids []int32, param string, err error) {
	if req.Messages == nil {
		ids, err = s.encode("prompt", openai.Prompt{Text: req.Prompt})
		return ids, "prompt", err
	}
	const messages = "messages"
	if ids, err = s.engine.EncodeChat(templateInput(req)); err != nil {
		return nil, messages, err
	}
	return ids, messages, s.checkLength(messages, ids)
}

func templateInput(req *openai.ChatRequest) ([]tokenizer.Message, tokenizer.TemplateOptions) {
	msgs := make([]tokenizer.Message, len(req.Messages))
	for i, m := range req.Messages {
		msgs[i] = tokenizer.Message{Role: m.Role, Content: m.Content, Extra: anyValues(m.Extra)}
	}
	o := tokenizer.TemplateOptions{AddGenerationPrompt: true, Kwargs: anyValues(req.TemplateKwargs)}
	for _, tool := range req.Tools {
		o.Tools = append(o.Tools, tool.Raw)
	}
	return msgs, o
}

func anyValues(members map[string]json.RawMessage) map[string]any {
	values := make(map[string]any, len(members))
	for name, raw := range members {
		values[name] = raw
	}
	return values
}

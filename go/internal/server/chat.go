package server

import (
	"encoding/json"
	"time"

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
	a := &chatAnswer{tally: newTally(req.N, req.N), req: req, names: s.engine.TokenBytes, id: "chatcmpl-" + s.newID(), created: time.Now().Unix()}
	return &task{jobs: jobsOf(&req.Generation, ids, param, a.id), stream: req.Stream, answer: a, model: req.Model}, nil
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
		o.Tools = append(o.Tools, tool)
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

package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/minisgl/minisgl/go/openai"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// chatCompletions serves /v1/chat/completions.
func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request, body []byte) error {
	req, err := openai.ParseChat(body, s.sampling(openai.DefaultSampling()))
	if err != nil {
		return err
	}
	if req.Model, err = s.called(req.Model); err != nil {
		return err
	}
	ids, param, err := s.encodeChat(req)
	if err != nil {
		return err
	}
	a := &chatAnswer{tally: newTally(req.N, req.N), req: req, names: s.engine.TokenBytes, id: "chatcmpl-" + s.newID(), created: time.Now().Unix()}
	jobs := jobsOf(&req.Generation, ids, param, a.id)
	return s.answer(w, r, req.Stream, jobs, a)
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

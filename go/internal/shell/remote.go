package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// maxReply bounds what is read of an answer that is no stream.
const maxReply = 1 << 20

// Server is the Model of a running server, ours or another with OpenAI's API.
type Server struct {
	ModelName string
	base      *url.URL
	key       string
}

// Connect asks the server at base, such as http://127.0.0.1:1919, for its models.
// model is the one to talk with; "" is the first.
func Connect(ctx context.Context, base *url.URL, key, model string) (*Server, error) {
	s := &Server{ModelName: model, key: key, base: base}
	if model != "" {
		return s, nil
	}
	var list openai.ModelList
	if err := s.get(ctx, "/v1/models", &list); err != nil {
		return nil, err
	}
	if len(list.Data) == 0 {
		return nil, fmt.Errorf("the server at %s has no model", base)
	}
	s.ModelName = list.Data[0].ID
	return s, nil
}

func (s *Server) get(ctx context.Context, path string, to any) error {
	resp, err := s.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(to); err != nil {
		return fmt.Errorf("%s%s: %w", s.base, path, err)
	}
	return nil
}

// send returns an answer whose status is 200.
func (s *Server) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, statusError(resp)
	}
	return resp, nil
}

func statusError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxReply)) // what came will do
	var body openai.ErrorBody
	if json.Unmarshal(data, &body) == nil && body.Error != nil && body.Error.Message != "" {
		return fmt.Errorf("the server answered %s: %w", resp.Status, body.Error)
	}
	return fmt.Errorf("the server answered %s", resp.Status)
}

// Answer implements Model.
func (s *Server) Answer(ctx context.Context, conversation []Message, params llm.SamplingParams, emit func(Piece)) (tokens int, err error) {
	body, err := json.Marshal(s.request(conversation, params))
	if err != nil {
		return 0, err
	}
	resp, err := s.send(ctx, http.MethodPost, "/v1/chat/completions", body)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	events := openai.NewEventReader(resp.Body, 0)
	for {
		event, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return tokens, errors.New("the server's answer broke off")
		case err != nil:
			return tokens, err
		case event.Data == "[DONE]":
			return tokens, nil
		}
		if tokens, err = readChunk(event.Data, tokens, emit); err != nil {
			return tokens, err
		}
	}
}

// chunk is what is read of an event: a part of the answer, the usage at its end,
// or an error.
type chunk struct {
	openai.ChatChunk
	openai.ErrorBody
}

// readChunk returns how many tokens there are with this event's.
func readChunk(data string, tokens int, emit func(Piece)) (int, error) {
	var c chunk
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return tokens, fmt.Errorf("the server sent an event that is no JSON: %w", err)
	}
	if c.Error != nil {
		return tokens, c.Error
	}
	for _, choice := range c.Choices {
		delta := choice.Delta
		switch {
		case delta.ReasoningContent != "":
			tokens++
			emit(Piece{Text: delta.ReasoningContent, Reasoning: true})
		case delta.Content != nil && (*delta.Content != "" || delta.Role == ""):
			tokens++
			emit(Piece{Text: *delta.Content})
		}
	}
	if c.Usage != nil {
		tokens = c.Usage.CompletionTokens
	}
	return tokens, nil
}

// request leaves out parameters that ask for nothing, since OpenAI's own servers
// refuse those that they don't know.
func (s *Server) request(conversation []Message, p llm.SamplingParams) map[string]any {
	body := map[string]any{
		"model": s.ModelName, "messages": conversation, "stream": true,
		"stream_options": map[string]bool{"include_usage": true},
		"max_tokens":     p.MaxTokens, "temperature": p.Temperature, "top_p": p.TopP,
	}
	neutral := llm.DefaultSampling()
	for name, values := range map[string][2]any{
		"top_k":              {p.TopK, neutral.TopK},
		"min_p":              {p.MinP, neutral.MinP},
		"presence_penalty":   {p.PresencePenalty, neutral.PresencePenalty},
		"frequency_penalty":  {p.FrequencyPenalty, neutral.FrequencyPenalty},
		"repetition_penalty": {p.RepetitionPenalty, neutral.RepetitionPenalty},
		"ignore_eos":         {p.IgnoreEOS, neutral.IgnoreEOS},
	} {
		if values[0] != values[1] {
			body[name] = values[0]
		}
	}
	return body
}

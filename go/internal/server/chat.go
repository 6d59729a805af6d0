package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// chatCompletions serves /v1/chat/completions. The model's name is not checked,
// as in mini-sglang: the server has one model, and answers under the name that
// it was called by.
func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) {
	if s.now() != ready {
		s.fail(w, s.unavailable())
		return
	}
	if err := s.chat(w, r); err != nil {
		s.fail(w, err)
	}
}

func (s *Server) unavailable() error {
	if s.now() == failed {
		return llm.ErrClosed
	}
	return llm.ErrDraining
}

// chat returns an error only if nothing has been sent.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	sampling := openai.DefaultSampling()
	s.engine.Info().Defaults.Apply(&sampling)
	req, err := openai.ParseChat(body, sampling)
	if err != nil {
		return err
	}
	stream, err := s.startChat(r.Context(), req)
	if err != nil {
		return err
	}
	defer stream.Close()
	if req.Model == "" {
		req.Model = s.engine.Info().Model
	}
	a := &chatAnswer{req: req, id: "chatcmpl-" + s.newID(), created: time.Now().Unix(), first: true}
	if req.Stream {
		return s.streamChat(r.Context(), w, stream, a)
	}
	return s.completeChat(r.Context(), w, stream, a)
}

// startChat hands the request to the engine.
func (s *Server) startChat(ctx context.Context, req *openai.ChatRequest) (Stream, error) {
	if req.Messages == nil {
		return s.engine.Stream(ctx, llm.Request{Text: req.Prompt, Params: req.Sampling})
	}
	ids, err := s.engine.EncodeChat(templateInput(req))
	if err != nil {
		return nil, err
	}
	if limit := s.engine.Info().MaxSeqLen; len(ids) >= limit {
		return nil, openai.Invalid("messages", "have %d tokens, but messages and answer together may have at most %d", len(ids), limit).
			WithCode(openai.CodeContextLength)
	}
	stream, err := s.engine.Stream(ctx, llm.Request{TokenIDs: ids, Params: req.Sampling})
	var invalid *llm.InvalidError
	if errors.As(err, &invalid) && invalid.Field == "prompt" {
		return nil, openai.Invalid("messages", "%s", invalid.Message)
	}
	return stream, err
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

// completeChat answers with one JSON document.
func (s *Server) completeChat(ctx context.Context, w http.ResponseWriter, stream Stream, a *chatAnswer) error {
	var text strings.Builder
	for {
		ev, err := nextEvent(ctx, stream)
		if err != nil {
			return err
		}
		text.WriteString(ev.Text)
		if ev.Finish != "" {
			s.writeJSON(w, http.StatusOK, a.response(text.String(), ev))
			return nil
		}
	}
}

// streamChat answers with server-sent events.
func (s *Server) streamChat(ctx context.Context, w http.ResponseWriter, stream Stream, a *chatAnswer) error {
	ev, err := nextEvent(ctx, stream)
	if err != nil {
		return err
	}
	out := s.newEventStream(w)
	for {
		if err := sendAll(out, a.chunks(ev)); err != nil {
			s.log.Debug("a client went away", "id", a.id, "error", err)
			return nil
		}
		if ev.Finish != "" {
			break
		}
		if ev, err = nextEvent(ctx, stream); err != nil {
			s.endWithError(ctx, out, err)
			return nil
		}
	}
	if err := out.done(); err != nil {
		s.log.Debug("a client went away", "id", a.id, "error", err)
	}
	return nil
}

// endWithError tells the reader of a stream that has begun why it ends early.
func (s *Server) endWithError(ctx context.Context, out *eventStream, err error) {
	if ctx.Err() != nil {
		return
	}
	if err := out.send(openai.ErrorBody{Error: s.apiError(err)}); err != nil {
		s.log.Debug("a client went away", "error", err)
	}
}

func sendAll(out *eventStream, chunks []any) error {
	for _, chunk := range chunks {
		if err := out.send(chunk); err != nil {
			return err
		}
	}
	return nil
}

// nextEvent returns the stream's next event; one that ends the request badly is
// an error.
func nextEvent(ctx context.Context, stream Stream) (llm.Event, error) {
	ev, err := stream.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return ev, errors.New("the request ended without a last event")
	case err != nil:
		return ev, err
	case ev.Finish == llm.FinishError && ev.Err == nil:
		return ev, errors.New("a forward pass failed")
	case ev.Finish == llm.FinishError:
		return ev, ev.Err
	case ev.Finish == llm.FinishAbort:
		return ev, shuttingDown()
	}
	return ev, nil
}

func randomID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

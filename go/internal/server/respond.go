package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// readBody reads a request's body within the limits of size and time.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, openai.Errorf(http.StatusUnsupportedMediaType, "Content-Encoding %q is not supported; send the body as it is", coding)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, openai.Errorf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, openai.Errorf(http.StatusRequestTimeout, "the body did not arrive within %v", s.cfg.ReadTimeout)
	case err != nil:
		return nil, openai.Errorf(http.StatusBadRequest, "reading the body: %v", err)
	}
	// The deadline that observe set must be gone before the wait for the engine,
	// during which net/http reads on to see whether the client goes away.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, nil
}

// encode writes JSON without the escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("server: encode %T: %w", v, err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil {
		s.log.Error("no response", "error", err)
		status, body = http.StatusInternalServerError, nil
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		s.log.Debug("a client went away", "error", err)
	}
}

func (s *Server) writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := io.WriteString(w, text); err != nil {
		s.log.Debug("a client went away", "error", err)
	}
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, err error) {
	e := s.apiError(err)
	if e.Code == codeQueueFull {
		w.Header().Set("Retry-After", "1")
	}
	s.writeJSON(w, e.Status, openai.ErrorBody{Error: e})
}

// statusClientGone goes to the access log only; nginx uses the same number.
const statusClientGone = 499

// apiError turns any error into what a client is told.
func (s *Server) apiError(err error) *openai.Error {
	var api *openai.Error
	var invalid *llm.InvalidError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &invalid):
		return openai.Invalid(invalid.Field, "%s", invalid.Message)
	case errors.Is(err, context.Canceled):
		return openai.Errorf(statusClientGone, "the client went away")
	case errors.Is(err, context.DeadlineExceeded):
		return openai.Errorf(http.StatusGatewayTimeout, "the request took longer than the %v that this server allows", s.cfg.RequestTimeout).WithCode("timeout")
	case errors.Is(err, llm.ErrDraining):
		return shuttingDown()
	case errors.Is(err, llm.ErrClosed):
		s.state.CompareAndSwap(int32(ready), int32(failed))
		return openai.Errorf(http.StatusServiceUnavailable, "the engine is not running")
	}
	s.log.Error("a request failed", "error", err)
	return openai.Errorf(http.StatusInternalServerError, "the engine failed: %v", err)
}

func shuttingDown() *openai.Error {
	return openai.Errorf(http.StatusServiceUnavailable, "the server is shutting down").WithCode("shutting_down")
}

// eventStream sends server-sent events, each at once.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (s *Server) newEventStream(w http.ResponseWriter) *eventStream {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no") // nginx would hold the events back
	return &eventStream{w, http.NewResponseController(w), s.cfg.WriteTimeout}
}

// plainText is an event's data that is no JSON.
type plainText string

// send sends one event that holds v, as JSON unless it is plainText.
func (e *eventStream) send(v any) error {
	if text, ok := v.(plainText); ok {
		return e.write([]byte(text))
	}
	data, err := encode(v)
	if err != nil {
		return err
	}
	return e.write(data)
}

// done sends the end mark.
func (e *eventStream) done() error { return e.write([]byte("[DONE]")) }

func (e *eventStream) write(data []byte) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(e.timeout))
	if err := openai.WriteEvent(e.w, data); err != nil {
		return err
	}
	return e.control.Flush()
}

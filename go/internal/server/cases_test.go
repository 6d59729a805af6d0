package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// What the cases share: public bug reports about servers of this kind, each a
// test by its number, on a real engine with a tiny random model of bytes.

// caseServer serves the tiny model, whose context has 512 tokens.
func caseServer(t *testing.T, cfg Config) (*Server, *llm.LLM) {
	t.Helper()
	l, err := llm.New(t.Context(), llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 4096, Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newServer(t, nil, cfg)
	s.SetEngine(LLM{LLM: l})
	return s, l
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// letters makes an answer readable: it is of the letters a to z alone.
func letters() string {
	var b strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		fmt.Fprintf(&b, `,"%d":50`, c)
	}
	return `"logit_bias":{` + b.String()[1:] + `},"ignore_eos":true`
}

// slow makes each batch take a moment, so that a test can be in its middle.
func slow(t *testing.T, l *llm.LLM, pause time.Duration) {
	t.Helper()
	err := l.SetForwardHook(func(_ llm.BatchInfo, forward func() error) error {
		time.Sleep(pause)
		return forward()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// alive asks for a normal answer, and that nothing is left of the requests before.
func alive(t *testing.T, s *Server) {
	t.Helper()
	if w := do(s, "POST", chatPath, `{"max_tokens":2,`+hi+`}`); w.Code != http.StatusOK {
		t.Fatalf("after that the server gives %d: %s", w.Code, w.Body)
	}
	clean(t, s)
}

// clean waits until no request runs and every page can be had.
func clean(t *testing.T, s *Server) {
	t.Helper()
	eventually(t, "nothing runs and every page can be had", func() bool {
		st := s.engine.Stats()
		return st.Running == 0 && st.Waiting == 0 && st.FreePages+st.EvictablePages == st.TotalPages
	})
	if err := s.engine.(LLM).CheckIntegrity(); err != nil {
		t.Error(err)
	}
}

// chunksOf returns the events of a stream that was answered, without [DONE],
// which must be there.
func chunksOf(t *testing.T, s *Server, path, body string) []map[string]any {
	t.Helper()
	w := do(s, "POST", path, body)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") {
		t.Fatalf("%s: status %d, %s: %s", body, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	var chunks []map[string]any
	for _, data := range streamed(t, w.Body.String()) {
		var chunk map[string]any
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		chunks = append(chunks, chunk)
	}
	return chunks
}

// choiceOf returns a chunk's only choice; nil if it has none.
func choiceOf(chunk map[string]any) map[string]any {
	if list, ok := chunk["choices"].([]any); ok && len(list) == 1 {
		return list[0].(map[string]any)
	}
	return nil
}

// contentOf joins the deltas of a chat, and counts the events that have one.
func contentOf(chunks []map[string]any) (text string, events int) {
	for _, chunk := range chunks {
		if c := choiceOf(chunk); c != nil {
			if part, ok := c["delta"].(map[string]any)["content"].(string); ok {
				text += part
				events++
			}
		}
	}
	return text, events
}

// whole is an answer in one piece: its text, why it ended and its usage.
type whole struct {
	Choices []struct {
		Index        int
		Text         string
		Message      struct{ Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

func answered(t *testing.T, s *Server, path, body string) whole {
	t.Helper()
	w := do(s, "POST", path, body)
	var got whole
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || len(got.Choices) == 0 {
		t.Fatalf("%s: status %d, %v: %s", body, w.Code, err, w.Body)
	}
	return got
}

// refused asks for a 400 that names a field.
func refused(t *testing.T, s *Server, path, body, param string) {
	t.Helper()
	w := do(s, "POST", path, body)
	var got struct {
		Error struct {
			Message, Type string
			Param         *string
		}
	}
	err := json.Unmarshal(w.Body.Bytes(), &got)
	if err != nil || w.Code != http.StatusBadRequest || got.Error.Type != "invalid_request_error" || got.Error.Message == "" {
		t.Errorf("%.80s: status %d: %.200s", body, w.Code, w.Body)
		return
	}
	if name := got.Error.Param; (param == "") != (name == nil) || name != nil && *name != param {
		t.Errorf("%.80s: the error is about %v, want %q: %s", body, name, param, got.Error.Message)
	}
}

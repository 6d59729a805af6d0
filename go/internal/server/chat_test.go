package server

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
	"github.com/minisgl/minisgl/go/tokenizer"
)

var update = flag.Bool("update", false, "rewrite the golden transcripts")

const hi = `"messages":[{"role":"user","content":"hi"}]`

var createdPattern = regexp.MustCompile(`"created":\d+`)

func TestChatTranscripts(t *testing.T) {
	hello := []llm.Event{token("Hel", 1), token("lo", 2), atEOS(2)}
	tests := []struct {
		name, members string
		script        []llm.Event
	}{
		{"stop", `"stream":true`, hello},
		{"length", `"stream":true`, []llm.Event{token("a", 1), finished(token("b", 2), llm.FinishLength)}},
		{"held_back", `"stream":true`, []llm.Event{token("", 1), token("", 2), token("🚀", 3), atEOS(3)}},
		{"rest_at_end", `"stream":true`, []llm.Event{token("", 1), {Text: "\ufffd", Finish: llm.FinishStop}}},
		{"no_tokens", `"stream":true`, []llm.Event{atEOS(0)}},
		{"framing", `"stream":true`, []llm.Event{token("\n\ndata: [DONE]\n\n\r\n: <b>&\u2028\"", 1), atEOS(1)}},
		{"usage", `"stream":true,"stream_options":{"include_usage":true}`, hello},
		{"usage_continuous", `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, hello},
		{"usage_empty_options", `"stream":true,"stream_options":{}`, hello},
		{"model_echoed", `"stream":true,"model":"any/name"`, []llm.Event{atEOS(0)}},
		{"error_later", `"stream":true`, []llm.Event{token("a", 1), {Finish: llm.FinishError, Err: errors.New("out of luck")}}},
		{"abort_later", `"stream":true`, []llm.Event{token("a", 1), {Finish: llm.FinishAbort}}},
		{"whole", `"stream":false`, hello},
		{"whole_by_default", `"model":"m"`, []llm.Event{token("a", 1), finished(token("\n", 2), llm.FinishLength)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, newFake(test.script...), Config{})
			w := do(s, "POST", chatPath, `{`+test.members+`,`+hi+`}`)
			got := w.Header().Get("Content-Type") + "\n" + createdPattern.ReplaceAllString(w.Body.String(), `"created":0`)
			golden(t, test.name, got)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestChatReachesEngine(t *testing.T) {
	e := newFake(atEOS(0))
	s := newServer(t, e, Config{})
	w := do(s, "POST", chatPath, `{"messages":[{"role":"developer","content":"s"},{"role":"tool","content":"4","tool_call_id":"c"}],
		"tools":[{"type":"function","function":{"name":"f","description":"d"}}],"chat_template_kwargs":{"enable_thinking":false},"temperature":0,"max_tokens":5,"top_k":2}`)
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	wantMessages := []tokenizer.Message{
		{Role: "system", Content: "s", Extra: map[string]any{}},
		{Role: "tool", Content: "4", Extra: map[string]any{"tool_call_id": json.RawMessage(`"c"`)}},
	}
	wantOptions := tokenizer.TemplateOptions{
		AddGenerationPrompt: true,
		Tools:               []any{json.RawMessage(`{"type":"function","function":{"name":"f","description":"d"}}`)},
		Kwargs:              map[string]any{"enable_thinking": json.RawMessage(`false`)},
	}
	wantRequests := []llm.Request{{TokenIDs: make([]int32, 3), Params: llm.SamplingParams{TopK: 2, TopP: 1, MaxTokens: 5, RepetitionPenalty: 1}}}
	if diff := cmp.Diff(wantMessages, e.messages); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wantOptions, e.options); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wantRequests, e.requests); diff != "" {
		t.Error(diff)
	}
}

func TestChatSamplesAsTheModelRecommends(t *testing.T) {
	e := newFake(atEOS(0))
	temperature, topK := 0.6, 20
	e.defaults = llm.SamplingDefaults{Temperature: &temperature, TopK: &topK}
	s := newServer(t, e, Config{})
	for _, test := range []struct {
		members string
		want    llm.SamplingParams
	}{
		{`"max_tokens":1`, llm.SamplingParams{Temperature: 0.6, TopK: 20, TopP: 1, MaxTokens: 1, RepetitionPenalty: 1}},
		{`"max_tokens":1,"temperature":0,"top_k":-1`, llm.SamplingParams{TopK: -1, TopP: 1, MaxTokens: 1, RepetitionPenalty: 1}},
	} {
		e.requests = nil
		if w := do(s, "POST", chatPath, `{`+test.members+`,`+hi+`}`); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		if diff := cmp.Diff(test.want, e.requests[0].Params); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPromptSkipsTemplate(t *testing.T) {
	e := newFake(atEOS(0))
	s := newServer(t, e, Config{})
	if w := do(s, "POST", chatPath, `{"prompt":"once","max_tokens":1,"temperature":0}`); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	want := []llm.Request{{TokenIDs: []int32{'o', 'n', 'c', 'e'}, Params: llm.SamplingParams{TopK: -1, TopP: 1, MaxTokens: 1, RepetitionPenalty: 1}}}
	if diff := cmp.Diff(want, e.requests); diff != "" {
		t.Error(diff)
	}
	if e.messages != nil {
		t.Error("the chat template was used")
	}
}

// checkFailure checks an error response: JSON, with all members of OpenAI's
// error object.
func checkFailure(t *testing.T, code int, header http.Header, body string, wantCode int, param, errCode any, message string) {
	t.Helper()
	var got struct{ Error map[string]any }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	if kind := header.Get("Content-Type"); code != wantCode || kind != "application/json" {
		t.Errorf("status %d, type %q; want %d and JSON", code, kind, wantCode)
	}
	kind := openai.TypeInvalidRequest
	if wantCode >= 500 {
		kind = openai.TypeServer
	}
	text, _ := got.Error["message"].(string)
	delete(got.Error, "message")
	if diff := cmp.Diff(map[string]any{"type": kind, "param": param, "code": errCode}, got.Error); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(text, message) {
		t.Errorf("message %q should contain %q", text, message)
	}
}

func TestChatErrors(t *testing.T) {
	body := `{` + hi + `}`
	tests := []struct {
		name, body     string
		engine         fakeEngine
		status         int
		param, errCode any
		message        string
	}{
		{"field", `{"messages":[{"role":"user","content":1}]}`, fakeEngine{}, 400, "messages[0].content", nil, "must be a string"},
		{"unsupported", `{"modalities":["audio"],` + hi + `}`, fakeEngine{}, 400, "modalities", "unsupported_parameter", "not supported"},
		{"too large", `{"zz":"` + strings.Repeat("x", 2000) + `",` + hi + `}`, fakeEngine{}, 413, nil, nil, "larger than 1000 bytes"},
		{"template", body, fakeEngine{encodeErr: &llm.InvalidError{Field: "messages", Message: "roles must alternate"}}, 400, "messages", nil, "roles must alternate"},
		{"context full", body, fakeEngine{promptLen: 64}, 400, "messages", "context_length_exceeded", "64 tokens are too many: prompt and answer together may have at most 64"},
		{"engine finds prompt wrong", body, fakeEngine{streamErr: &llm.InvalidError{Field: "prompt", Message: "is empty"}}, 400, "messages", nil, "is empty"},
		{"prompt wrong", `{"prompt":""}`, fakeEngine{streamErr: &llm.InvalidError{Field: "prompt", Message: "is empty"}}, 400, "prompt", nil, "is empty"},
		{"draining", body, fakeEngine{streamErr: llm.ErrDraining}, 503, nil, "shutting_down", "shutting down"},
		{"closed", body, fakeEngine{streamErr: llm.ErrClosed}, 503, nil, nil, "not running"},
		{"failed at once", body, fakeEngine{script: []llm.Event{{Finish: llm.FinishError, Err: errors.New("out of luck")}}}, 500, nil, nil, "out of luck"},
		{"failed without reason", body, fakeEngine{script: []llm.Event{{Finish: llm.FinishError}}}, 500, nil, nil, "forward pass"},
		{"aborted at once", body, fakeEngine{script: []llm.Event{{Finish: llm.FinishAbort}}}, 503, nil, "shutting_down", "shutting down"},
		{"no last event", body, fakeEngine{}, 500, nil, nil, "without a last event"},
	}
	for i := range tests {
		test := &tests[i]
		for mode, stream := range map[string]string{"stream": `"stream":true,`, "whole": ``} {
			t.Run(test.name+"/"+mode, func(t *testing.T) {
				s := newServer(t, &test.engine, Config{MaxBody: 1000})
				w := do(s, "POST", chatPath, strings.Replace(test.body, "{", "{"+stream, 1))
				checkFailure(t, w.Code, w.Header(), w.Body.String(), test.status, test.param, test.errCode, test.message)
				if live := test.engine.live.Load(); live != 0 {
					t.Errorf("%d requests left in the engine", live)
				}
			})
		}
	}
}

func TestEngineGoneShowsInHealth(t *testing.T) {
	e := newFake()
	e.streamErr = llm.ErrClosed
	s := newServer(t, e, Config{})
	do(s, "POST", chatPath, `{`+hi+`}`)
	if w := do(s, "GET", "/health", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"failed"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	w := do(s, "POST", chatPath, `{`+hi+`}`)
	checkFailure(t, w.Code, w.Header(), w.Body.String(), 503, nil, nil, "not running")
}

func TestContentCoding(t *testing.T) {
	s := newServer(t, newFake(atEOS(0)), Config{})
	for coding, want := range map[string]int{"gzip": 415, "identity": 200, "": 200} {
		r, err := http.NewRequest("POST", chatPath, strings.NewReader(`{`+hi+`}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Encoding", coding)
		r.Header.Set("Content-Type", "text/plain")
		if w := serve(s, r); w.Code != want {
			t.Errorf("%q: got %d, want %d", coding, w.Code, want)
		}
	}
}

package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

const completionsPath = "/v1/completions"

func TestCompletionTranscripts(t *testing.T) {
	hello := []llm.Event{token("Hel", 1), token("lo", 2), atEOS(2)}
	tests := []struct {
		name, members string
		script        []llm.Event
	}{
		{"stop", `"stream":true`, hello},
		{"length", `"stream":true`, []llm.Event{token("a", 1), finished(token("b", 2), llm.FinishLength)}},
		{"held_back", `"stream":true`, []llm.Event{token("", 1), token("é", 2), {Text: "rest", Finish: llm.FinishLength}}},
		{"no_tokens", `"stream":true,"echo":true`, []llm.Event{atEOS(0)}},
		{"usage", `"stream":true,"stream_options":{"include_usage":true}`, hello},
		{"usage_continuous", `"stream":true,"stream_options":{"continuous_usage_stats":true}`, hello},
		{"echo", `"stream":true,"echo":true`, hello},
		{"error_later", `"stream":true`, []llm.Event{token("a", 1), {Finish: llm.FinishError, Err: errors.New("out of luck")}}},
		{"whole", `"model":"m"`, hello},
		{"whole_echo", `"echo":true`, hello},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, newFake(test.script...), Config{})
			w := do(s, "POST", completionsPath, `{`+test.members+`,"prompt":"hi "}`)
			got := w.Header().Get("Content-Type") + "\n" + createdPattern.ReplaceAllString(w.Body.String(), `"created":0`)
			golden(t, "completion_"+test.name, got)
		})
	}
}

// fourAnswers are told apart by their text and usage.
func fourAnswers() *fakeEngine {
	e := newFake()
	e.scripts = [][]llm.Event{
		{token("a0", 1), atEOS(1)},
		{token("a1", 1), finished(token("!", 2), llm.FinishLength)},
		{token("b0", 1), token("?", 2), atEOS(2)},
		{atEOS(0)},
	}
	return e
}

func TestManyChoices(t *testing.T) {
	e := fourAnswers()
	s := newServer(t, e, Config{})
	w := do(s, "POST", completionsPath, `{"prompt":["x",[121]],"n":2,"echo":true,"seed":5,"max_tokens":3,"stop":"z","stop_token_ids":[9]}`)
	golden(t, "completion_many", createdPattern.ReplaceAllString(w.Body.String(), `"created":0`))
	seeds := map[uint64]bool{}
	for i, req := range e.requests {
		if want := int32("xxyy"[i]); req.TokenIDs[0] != want || req.Params.MaxTokens != 3 || !cmp.Equal(req.Stop, []string{"z"}) || !cmp.Equal(req.StopTokenIDs, []int32{9}) {
			t.Errorf("request %d is %+v", i, req)
		}
		seeds[*req.Params.Seed] = true
	}
	if len(e.requests) != 4 || len(seeds) != 2 || *e.requests[0].Params.Seed != 5 {
		t.Errorf("%d requests, seeds %v", len(e.requests), seeds)
	}
}

// streamed returns the data of a stream's events but the last, which must be [DONE].
func streamed(t *testing.T, body string) []string {
	t.Helper()
	events := openai.NewEventReader(strings.NewReader(body), 0)
	var data []string
	for ev, err := events.Next(); err == nil; ev, err = events.Next() {
		data = append(data, ev.Data)
	}
	if len(data) == 0 || data[len(data)-1] != "[DONE]" {
		t.Fatalf("no [DONE]: %q", body)
	}
	return data[:len(data)-1]
}

// Choices that stream at once each have their own text and reason; the usage comes
// once, at the end.
func TestManyChoicesStream(t *testing.T) {
	s := newServer(t, fourAnswers(), Config{})
	w := do(s, "POST", completionsPath, `{"prompt":["x","y"],"n":2,"stream":true,"stream_options":{"include_usage":true}}`)
	texts, reasons := make([]string, 4), make([]string, 4)
	events := streamed(t, w.Body.String())
	for _, data := range events[:len(events)-1] {
		var chunk openai.TextResponse
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 || !strings.Contains(data, `"usage":null`) {
			t.Fatalf("%v: %s", err, data)
		}
		c := chunk.Choices[0]
		if reasons[c.Index] != "" {
			t.Errorf("choice %d goes on after its end", c.Index)
		}
		texts[c.Index] += c.Text
		if c.FinishReason != nil {
			reasons[c.Index] = *c.FinishReason
		}
	}
	if diff := cmp.Diff([]string{"a0", "a1!", "b0?", ""}, texts); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"stop", "length", "stop", "stop"}, reasons); diff != "" {
		t.Error(diff)
	}
	last := events[len(events)-1]
	if !strings.Contains(last, `"choices":[]`) || !strings.Contains(last, `"usage":{"prompt_tokens":6,"completion_tokens":5,"total_tokens":11`) {
		t.Errorf("the last event is %s", last)
	}
}

func TestChatChoices(t *testing.T) {
	e := fourAnswers()
	s := newServer(t, e, Config{})
	w := do(s, "POST", chatPath, `{"n":3,"seed":1,`+hi+`}`)
	golden(t, "many", createdPattern.ReplaceAllString(w.Body.String(), `"created":0`))
	e.requests = nil
	w = do(s, "POST", chatPath, `{"n":3,"stream":true,`+hi+`}`)
	roles := map[int]int{}
	for _, data := range streamed(t, w.Body.String()) {
		var chunk openai.ChatChunk
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatal(err)
		}
		if c := chunk.Choices[0]; c.Delta.Role != "" {
			roles[c.Index]++
		}
	}
	if diff := cmp.Diff(map[int]int{0: 1, 1: 1, 2: 1}, roles); diff != "" {
		t.Error("roles by choice:", diff)
	}
}

func TestManyChoicesEndTogether(t *testing.T) {
	bad := []llm.Event{token("a", 1), {Finish: llm.FinishError, Err: errors.New("out of luck")}}
	long := make([]llm.Event, 0, 100_000) // more than are read before bad ends it all
	for i := range cap(long) {
		long = append(long, token("x", i+1))
	}
	for _, stream := range []string{`"stream":true,`, ``} {
		e := newFake()
		e.scripts = [][]llm.Event{long, bad, long}
		s := newServer(t, e, Config{})
		w := do(s, "POST", completionsPath, `{`+stream+`"prompt":["a","b","c"]}`)
		if !strings.Contains(w.Body.String(), "out of luck") || strings.Contains(w.Body.String(), "[DONE]") {
			t.Errorf("got %s", w.Body)
		}
		if live, admitted := e.live.Load(), s.live.Load(); live != 0 || admitted != 0 {
			t.Errorf("%d requests left in the engine, %d counted", live, admitted)
		}
	}
}

func TestCompletionErrors(t *testing.T) {
	tests := []struct {
		name, body     string
		streamErr      error
		status         int
		param, errCode any
		message        string
	}{
		{"context full", `{"prompt":["a","` + strings.Repeat("x", 64) + `"]}`, nil, 400, "prompt[1]", "context_length_exceeded", "64 tokens are too many"},
		{"empty", `{"prompt":""}`, &llm.InvalidError{Field: "prompt", Message: "is empty"}, 400, "prompt", nil, "is empty"},
		{"empty in list", `{"prompt":["",""]}`, &llm.InvalidError{Field: "prompt", Message: "is empty"}, 400, "prompt[0]", nil, "is empty"},
		{"draining", `{"prompt":"a"}`, llm.ErrDraining, 503, nil, "shutting_down", "shutting down"},
		{"not JSON", `{`, nil, 400, nil, nil, "not valid JSON"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := newFake(atEOS(0))
			e.streamErr = test.streamErr
			s := newServer(t, e, Config{})
			w := do(s, "POST", completionsPath, test.body)
			checkFailure(t, w.Code, w.Header(), w.Body.String(), test.status, test.param, test.errCode, test.message)
			if n := s.live.Load(); n != 0 {
				t.Errorf("%d requests counted", n)
			}
		})
	}
}

func TestModelNames(t *testing.T) {
	s := newServer(t, newFake(atEOS(0)), Config{ModelName: "served", StrictModel: true})
	for _, path := range []string{chatPath, completionsPath} {
		body := func(model string) string {
			if path == chatPath {
				return `{` + model + hi + `}`
			}
			return `{` + model + `"prompt":"x"}`
		}
		w := do(s, "POST", path, body(`"model":"org/fake",`))
		checkFailure(t, w.Code, w.Header(), w.Body.String(), 404, "model", "model_not_found", `only "served"`)
		for _, model := range []string{`"model":"served",`, `"model":"",`, ``} {
			if w := do(s, "POST", path, body(model)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"model":"served"`) {
				t.Errorf("%s: got %d %s", model, w.Code, w.Body)
			}
		}
	}
	if w := do(s, "GET", "/v1/models/served", ""); w.Code != http.StatusOK {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

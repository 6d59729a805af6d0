package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// kindOf returns the kind that Python would see.
func kindOf(t *testing.T, err error) *kindError {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	var told kindError
	if jsonErr := json.Unmarshal([]byte(err.Error()), &told); jsonErr != nil {
		t.Fatalf("error %q is not JSON: %v", err, jsonErr)
	}
	return &told
}

// finish waits for a job's end, by Wait alone.
func finish(t *testing.T, job int64) {
	t.Helper()
	for range 1000 {
		text, err := Wait(job, 10)
		if err != nil {
			t.Fatal(err)
		}
		var s status
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if s.Done {
			return
		}
	}
	t.Fatal("the job does not end")
}

func TestErrorsHaveTheirKind(t *testing.T) {
	for _, tc := range []struct {
		err  error
		kind string
	}{
		{&llm.InvalidError{Field: "dtype", Message: "no"}, kindInvalid},
		{fmt.Errorf("open: %w", fs.ErrNotExist), kindNotFound},
		{fmt.Errorf("open: %w", fs.ErrPermission), kindPermission},
		{fmt.Errorf("x: %w", llm.ErrClosed), kindClosed},
		{llm.ErrDraining, kindClosed},
		{context.Canceled, kindCanceled},
		{errors.New("other"), kindInternal},
		{asModelError(errors.New("tensor w is cut short")), kindModel},
		{asModelError(fmt.Errorf("open: %w", fs.ErrNotExist)), kindNotFound},
	} {
		err := tc.err
		guard(&err)
		if got := kindOf(t, err); got.Kind != tc.kind {
			t.Errorf("%v has kind %q, want %q", tc.err, got.Kind, tc.kind)
		}
	}
}

func TestInvalidErrorKeepsItsField(t *testing.T) {
	var err error = &llm.InvalidError{Field: "prompts[3]", Message: "is empty"}
	guard(&err)
	if got := kindOf(t, err); got.Field != "prompts[3]" || got.Message != "is empty" {
		t.Errorf("got %+v", got)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	exported := func() (err error) {
		defer guard(&err)
		panic("boom")
	}
	if got := kindOf(t, exported()); got.Kind != kindInternal || !strings.Contains(got.Message, "boom") {
		t.Errorf("got %+v", got)
	}
	job := start(func(context.Context, *task) (any, error) { panic("bang") }, nil)
	finish(t, job)
	_, err := Result(job)
	if got := kindOf(t, err); got.Kind != kindInternal || !strings.Contains(got.Message, "bang") {
		t.Errorf("got %+v", got)
	}
}

func TestJobGivesItsResultOnce(t *testing.T) {
	release := make(chan struct{})
	job := start(func(_ context.Context, t *task) (any, error) {
		t.setProgress(llm.Progress{Requests: 2, DoneRequests: 1})
		<-release
		return []int{7}, nil
	}, nil)
	if _, err := Result(job); err == nil {
		t.Error("a running job gave a result")
	}
	close(release)
	finish(t, job)
	text, err := Wait(job, 0)
	if want := `{"done":true,"requests":2,"done_requests":1,"prompt_tokens":0,"completion_tokens":0}`; err != nil || text != want {
		t.Errorf("status %s, %v; want %s", text, err, want)
	}
	if text, err := Result(job); err != nil || text != "[7]" {
		t.Errorf("result %s, %v", text, err)
	}
	if _, err := Result(job); err == nil {
		t.Error("the result was given twice")
	}
}

func TestCancelAndForget(t *testing.T) {
	untilCancelled := func(ctx context.Context, _ *task) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	job := start(untilCancelled, nil)
	if _, err := Cancel(job); err != nil {
		t.Fatal(err)
	}
	finish(t, job)
	if _, err := Result(job); kindOf(t, err).Kind != kindCanceled {
		t.Errorf("got %v", err)
	}
	job = start(untilCancelled, nil)
	forgotten, _ := tasks.get(job)
	if _, err := Forget(job); err != nil {
		t.Fatal(err)
	}
	select {
	case <-forgotten.done:
	case <-time.After(10 * time.Second):
		t.Error("a forgotten job runs on")
	}
	if n := tasks.len(); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

func TestForgottenResultIsReleased(t *testing.T) {
	for _, first := range []string{"forget", "end"} {
		end := make(chan struct{})
		released := make(chan any, 1)
		job := start(func(context.Context, *task) (any, error) {
			<-end
			return int64(7), nil
		}, func(result any) { released <- result })
		if first == "end" {
			close(end)
			finish(t, job)
		}
		if _, err := Forget(job); err != nil {
			t.Fatal(err)
		}
		if first == "forget" {
			close(end)
		}
		select {
		case got := <-released:
			if got != int64(7) {
				t.Errorf("%s first: %v was released", first, got)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s first: the result was not released", first)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for _, text := range []string{`{"max_running_reqs":4}`, `{"page_size":"1"}`, `{} {}`, `[1]`, ``, `{"page_size":1e99}`} {
		_, err := OpenEngine(text)
		if got := kindOf(t, err); got.Kind != kindType {
			t.Errorf("%s: got %+v", text, got)
		}
	}
}

func TestUnknownHandlesAreErrors(t *testing.T) {
	if _, err := Generate(99, "[]"); kindOf(t, err).Kind != kindClosed {
		t.Errorf("Generate: %v", err)
	}
	if _, err := Info(99); kindOf(t, err).Kind != kindClosed {
		t.Errorf("Info: %v", err)
	}
	if _, err := Wait(99, 0); kindOf(t, err).Kind != kindInternal {
		t.Errorf("Wait: %v", err)
	}
	if _, err := CloseEngine(99); err != nil {
		t.Errorf("CloseEngine: %v", err)
	}
	if _, err := Forget(99); err != nil {
		t.Errorf("Forget: %v", err)
	}
}

func TestMessages(t *testing.T) {
	for _, tc := range []struct{ in, content, wantErr string }{
		{in: `{"role":"user","content":"a"}`, content: "a"},
		{in: `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, content: "ab"},
		{in: `{"role":"user","content":[]}`},
		{in: `{"role":"assistant","content":null,"tool_calls":[1]}`},
		{in: `{"role":"assistant"}`},
		{in: `{"role":"user","content":5}`, wantErr: "content must be"},
		{in: `{"role":"user","content":[{"type":"image_url"}]}`, wantErr: `content[0] has type "image_url"`},
		{in: `{"role":"user","content":[{"type":"text"}]}`, wantErr: "content[0]"},
		{in: `{"role":5}`, wantErr: "role must be"},
		{in: `{"content":"a"}`, wantErr: "role must be"},
	} {
		var m message
		if err := decode(tc.in, &m); err != nil {
			t.Fatal(err)
		}
		got, err := m.parse()
		if tc.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("%s: error %v, want %q", tc.in, err, tc.wantErr)
			}
			continue
		}
		if err != nil || got.Content != tc.content {
			t.Errorf("%s: content %q, %v; want %q", tc.in, got.Content, err, tc.content)
		}
	}
}

func TestErrorsAreNamedAfterTheRequest(t *testing.T) {
	list := []request{{Name: "prompts[0]"}, {Name: "messages[1]"}}
	err := withNames(&llm.InvalidError{Field: "prompts[1]", Message: "is too long"}, list)
	if got := classify(err); got.Field != "messages[1]" {
		t.Errorf("got %+v", got)
	}
	_, err = parseMessages([]message{{"role": json.RawMessage(`5`)}})
	if got := classify(withField(err, "messages[4]")); got.Field != "messages[4][0]" {
		t.Errorf("got %+v", got)
	}
}

package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/openai"
)

func serve(s *Server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestRoutes(t *testing.T) {
	s := newServer(t, newFake(atEOS(0)), Config{})
	tests := []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/health", 200, ""},
		{"HEAD", "/health", 200, ""},
		{"GET", "/v1", 200, ""},
		{"POST", "/v1", 200, ""},
		{"HEAD", "/v1", 200, ""},
		{"OPTIONS", "/v1", 200, ""},
		{"GET", "/v1/", 200, ""},
		{"GET", "/v1/models", 200, ""},
		{"GET", "/v1/models/", 200, ""},
		{"GET", "/v1//models", 200, ""},
		{"GET", "//v1/./models", 200, ""},
		{"GET", "/v1/models/org/fake", 200, ""},
		{"GET", "/v1/models/org%2Ffake", 200, ""},
		{"GET", "/v1/models/other", 404, ""},
		{"POST", "/v1/chat/completions", 200, ""},
		{"POST", "/v1//chat/completions/", 200, ""},
		{"OPTIONS", "/v1/chat/completions", 204, "OPTIONS, POST"},
		{"GET", "/v1/chat/completions", 405, "OPTIONS, POST"},
		{"DELETE", "/v1/models", 405, "GET, HEAD, OPTIONS"},
		{"PUT", "/v1", 405, "GET, HEAD, OPTIONS, POST"},
		{"GET", "/nothing/", 404, ""},
		{"POST", "/v1/nothing", 404, ""},
		{"GET", "/V1/models", 404, ""},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			w := do(s, test.method, test.path, `{`+hi+`}`)
			if w.Code != test.status || w.Header().Get("Allow") != test.allow {
				t.Errorf("got %d, Allow %q; want %d, %q", w.Code, w.Header().Get("Allow"), test.status, test.allow)
			}
			if w.Code == 204 {
				return
			}
			if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("not JSON: %s", w.Body)
			}
			var body openai.ErrorBody
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || (body.Error != nil) != (w.Code >= 400) {
				t.Errorf("error %v in body %s", err, w.Body)
			}
		})
	}
}

func TestModels(t *testing.T) {
	s := newServer(t, newFake(), Config{})
	var got openai.ModelList
	if err := json.Unmarshal(do(s, "GET", "/v1/models", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := openai.ModelList{Object: "list", Data: []openai.Model{{
		ID: "org/fake", Object: "model", Created: s.started.Unix(), OwnedBy: "minisgl", Root: "/models/fake", MaxModelLen: 64,
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoading(t *testing.T) {
	s := newServer(t, nil, Config{})
	for _, path := range []string{"/v1/models", "/v1", chatPath, "/nothing"} {
		w := do(s, "POST", path, "{}")
		checkFailure(t, w.Code, w.Header(), w.Body.String(), 503, nil, "loading", "still loading")
	}
	if w := do(s, "GET", "/health", ""); w.Code != 503 || w.Body.String() != `{"status":"loading"}` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	s.SetEngine(newFake())
	if w := do(s, "GET", "/health", ""); w.Code != 200 || w.Body.String() != `{"status":"ok"}` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	s := newServer(t, newFake(), Config{})
	s.handler = s.observe(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") }))
	w := do(s, "GET", "/", "")
	checkFailure(t, w.Code, w.Header(), w.Body.String(), 500, nil, nil, "internal error")

	s.handler = s.observe(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("begun"))
		panic("oops")
	}))
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("the connection was not broken")
		}
	}()
	do(s, "GET", "/", "")
}

// TestRequestID: a caller's name for a request is echoed if it is one, on errors
// too; else the server gives one.
func TestRequestID(t *testing.T) {
	s := newServer(t, newFake(token("a", 1), atEOS(1)), Config{})
	for id, want := range map[string]string{"abc-1": "abc-1", "": "0", "a b": "0", strings.Repeat("x", 129): "0", strings.Repeat("x", 128): strings.Repeat("x", 128)} {
		for _, body := range []string{`{` + hi + `}`, `{`} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", chatPath, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Request-Id", id)
			if got := serve(s, r).Header().Get("X-Request-Id"); got != want {
				t.Errorf("%q, body %s: echoed as %q", id, body, got)
			}
		}
	}
}

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func request(s *Server, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestAPIKey(t *testing.T) {
	s := newServer(t, newFake(atEOS(0)), Config{APIKey: "secret"})
	for _, path := range []string{
		"POST /generate", "POST /v1/completions", "POST /v1/chat/completions", "POST //generate", "GET /v1/models", "POST /flush_cache",
		"GET /flush_cache", "POST /abort_request", "GET /server_info", "POST /tokenize", "POST /detokenize", "GET /health_generate", "GET /ws/generate",
		"GET /ws/stats", "GET /nothing",
	} {
		method, path, _ := strings.Cut(path, " ")
		for _, value := range []string{"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret"} {
			w := request(s, method, path, `{}`, "Authorization", value)
			checkFailure(t, w.Code, w.Header(), w.Body.String(), 401, nil, "invalid_api_key", "API key")
		}
		for _, value := range []string{"Bearer secret", "bearer  secret"} {
			if w := request(s, method, path, `{}`, "Authorization", value); w.Code == http.StatusUnauthorized {
				t.Errorf("%s %s with %q: got 401", method, path, value)
			}
		}
	}
	for _, path := range []string{"/health", "/metrics"} {
		if w := do(s, "GET", path, ""); w.Code != http.StatusOK {
			t.Errorf("%s without a key: got %d", path, w.Code)
		}
	}
}

func TestCORS(t *testing.T) {
	const origin = "http://x"
	tests := []struct{ allowed, want string }{{"", ""}, {"*", "*"}, {origin, origin}, {"http://y", ""}}
	for _, test := range tests {
		s := newServer(t, newFake(atEOS(0)), Config{APIKey: "secret", CORSOrigin: test.allowed})
		preflight := request(s, "OPTIONS", chatPath, "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,content-type")
		refused := request(s, "POST", chatPath, `{`+hi+`}`, "Origin", origin)
		served := request(s, "POST", chatPath, `{`+hi+`}`, "Origin", origin, "Authorization", "Bearer secret")
		if preflight.Code/100 != 2 || refused.Code != 401 || served.Code != 200 {
			t.Errorf("%q: status %d, %d, %d", test.allowed, preflight.Code, refused.Code, served.Code)
		}
		for i, w := range []*httptest.ResponseRecorder{preflight, refused, served} {
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != test.want {
				t.Errorf("%q, answer %d: allowed origin %q, want %q", test.allowed, i, got, test.want)
			}
		}
		if got := preflight.Header().Get("Access-Control-Allow-Headers"); (got == "authorization,content-type") != (test.want != "") {
			t.Errorf("%q: allowed headers %q", test.allowed, got)
		}
	}
}

func TestQueueLimit(t *testing.T) {
	e := newFake(token("a", 1), atEOS(1))
	e.step = make(chan struct{})
	s := newServer(t, e, Config{MaxRunning: 1, MaxQueued: 2})
	url, client := listen(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan string)
	for range 3 {
		go func() { answered <- send(ctx, client, url+"/generate", `{"text":"a"}`) }()
	}
	eventually(t, "one runs and two wait", func() bool { return e.live.Load() == 3 })
	w := do(s, "POST", chatPath, `{`+hi+`}`)
	checkFailure(t, w.Code, w.Header(), w.Body.String(), 503, nil, "queue_full", "2 requests are waiting")
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	cancel()
	for range 3 {
		<-answered
	}
	eventually(t, "all have left", func() bool { return s.live.Load() == 0 })
	close(e.step)
	if w := do(s, "POST", completionsPath, `{"prompt":["a","b","c"]}`); w.Code != http.StatusOK {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := do(s, "POST", completionsPath, `{"prompt":["a","b","c","d"]}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("four prompts at once: got %d", w.Code)
	}
	e.waiting.Store(2)
	if w := do(s, "POST", completionsPath, `{"prompt":"a"}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("while the engine's queue is full: got %d", w.Code)
	}
}

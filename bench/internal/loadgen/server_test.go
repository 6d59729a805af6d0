package loadgen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/record"
)

func TestParseBase(t *testing.T) {
	for raw, want := range map[string]string{
		"http://127.0.0.1:1919":                         "http://127.0.0.1:1919",
		"http://127.0.0.1:1919/":                        "http://127.0.0.1:1919",
		"http://127.0.0.1:1919/v1":                      "http://127.0.0.1:1919",
		"http://127.0.0.1:1919/v1/":                     "http://127.0.0.1:1919",
		"http://127.0.0.1:1919/v1/chat/completions":     "http://127.0.0.1:1919",
		"https://host/gateway/v1":                       "https://host/gateway",
		"https://host/gateway/v1/chat/completions/\x20": "https://host/gateway",
		"127.0.0.1:1919":                                "http://127.0.0.1:1919",
		"localhost:1919/v1":                             "http://localhost:1919",
		"[::1]:1919":                                    "http://[::1]:1919",
	} {
		if got, err := ParseBase(raw); err != nil || got != want {
			t.Errorf("ParseBase(%q) = %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", "http://", "ftp://host", "http://host:port", "http://host?a=b", "http://host#x", "://", "http://:80"} {
		if got, err := ParseBase(raw); err == nil {
			t.Errorf("ParseBase(%q) = %q, want an error", raw, got)
		}
	}
}

func TestWaitReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := mockserver.ServePipe(mockserver.New(mockserver.Config{Model: "m"}))
		defer pipe.Close()
		var tries atomic.Int32
		client := NewHTTP(HTTPOptions{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if tries.Add(1) < 4 {
				return nil, errors.New("connection refused")
			}
			return pipe.Dial(ctx, network, addr)
		}})
		defer client.Close()
		waits := 0
		models, err := client.WaitReady(t.Context(), "http://mock", time.Minute, func(error) { waits++ })
		if err != nil || len(models) != 1 || models[0] != "m" || waits != 1 {
			t.Errorf("models %v, error %v, %d messages; want m after one message", models, err, waits)
		}
	})
}

func TestWaitReadyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := NewHTTP(HTTPOptions{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }})
		defer client.Close()
		begin := time.Now()
		_, err := client.WaitReady(t.Context(), "http://mock", 10*time.Second, nil)
		if err == nil || !strings.Contains(err.Error(), "within 10s") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(begin); waited != 10*time.Second {
			t.Errorf("waited %v, want 10s", waited)
		}
		if IsPermanent(err) {
			t.Error("a refused connection may go away")
		}
	})
}

func TestWaitReadyStopsAtARefusal(t *testing.T) {
	for _, answer := range []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such key", http.StatusUnauthorized) },
		func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
	} {
		server := httptest.NewServer(answer)
		client := NewHTTP(HTTPOptions{})
		if _, err := client.WaitReady(t.Context(), server.URL, time.Hour, nil); !IsPermanent(err) {
			t.Errorf("error %v, want one that ends the wait", err)
		}
		client.Close()
		server.Close()
	}
}

func TestHeader(t *testing.T) {
	var header string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { header = r.Header.Get("Authorization") }))
	defer server.Close()
	client := NewHTTP(HTTPOptions{Header: map[string]string{"Authorization": "Bearer secret"}})
	defer client.Close()
	client.Do(t.Context(), Call{URL: server.URL, Body: []byte("{}")})
	if header != "Bearer secret" {
		t.Errorf("Authorization is %q", header)
	}
}

func TestNoServer(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	client := NewHTTP(HTTPOptions{})
	defer client.Close()
	for _, url := range []string{"http://" + closed.Addr().String(), "http://host.invalid"} {
		x := client.Do(t.Context(), Call{URL: url, Body: []byte("{}")})
		if x.Kind != record.Connect || x.Err == "" || x.Done.IsZero() {
			t.Errorf("%s: %v %q, want a connection failure", url, x.Kind, x.Err)
		}
	}
}

// Requests one after the other share a connection: a finished stream is read to its end.
func TestConnectionsAreReused(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(mockserver.New(mockserver.Config{}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := NewHTTP(HTTPOptions{Connections: 1})
	defer client.Close()
	chat := NewTarget(client, Chat, server.URL, Options{Model: "mock"}, TextRequests(make([]string, 5), 4))
	records := Run(t.Context(), chat, Config{Schedule: make([]time.Duration, 5), MaxConcurrency: 1})
	for _, r := range records {
		if !r.OK() {
			t.Errorf("request %d: %v %s", r.Index, r.Kind, r.Err)
		}
	}
	if opened.Load() != 1 {
		t.Errorf("%d connections for 5 requests in turn, want 1", opened.Load())
	}
}

// An answer's header counts as a sign of life.
func TestHeaderRestartsIdleLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := mockserver.ServePipe(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			time.Sleep(600 * ms)
			http.NewResponseController(w).Flush()
			time.Sleep(600 * ms)
			w.Write([]byte("data: [DONE]\n\n"))
		}))
		defer pipe.Close()
		client := NewHTTP(HTTPOptions{IdleTimeout: time.Second, Dial: pipe.Dial})
		defer client.Close()
		if x := client.Do(t.Context(), Call{URL: "http://mock", Body: []byte("{}")}); x.Kind != record.OK || !x.Finish {
			t.Errorf("ended as %v: %s", x.Kind, x.Err)
		}
	})
}

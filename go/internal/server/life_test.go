package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// running is a server between Listen and the end of Run.
type running struct {
	url    string
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

func start(t *testing.T, s *Server, load func(context.Context) (Engine, error)) *running {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	transport := &http.Transport{}
	r := &running{
		url: "http://" + l.Addr().String(), client: &http.Client{Transport: transport},
		stop: stop, ended: make(chan error, 1),
	}
	go func() { r.ended <- s.Run(ctx, l, load) }()
	t.Cleanup(func() {
		stop()
		transport.CloseIdleConnections()
	})
	return r
}

func (r *running) health(t *testing.T) int {
	t.Helper()
	resp, err := r.client.Get(r.url + "/health")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("Run did not return in 20 s")
		return nil
	}
}

func loaded(e Engine) func(context.Context) (Engine, error) {
	return func(context.Context) (Engine, error) {
		if fake, ok := e.(*fakeEngine); ok {
			fake.cold = true
		}
		return e, nil
	}
}

// streamOne starts a stream and reads its first event.
func (r *running) streamOne(t *testing.T, e *fakeEngine) *http.Response {
	t.Helper()
	go func() { e.step <- struct{}{} }()
	resp, err := post(t, t.Context(), r.client, r.url, `"stream":true,`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func steppedFake() *fakeEngine {
	e := newFake(token("a", 1), token("b", 2), atEOS(2))
	e.step = make(chan struct{})
	return e
}

func TestDrainLetsStreamsEnd(t *testing.T) {
	e := steppedFake()
	r := start(t, newServer(t, nil, Config{DrainTimeout: time.Minute}), loaded(e))
	eventually(t, "ready", func() bool { return r.health(t) == 200 })
	resp := r.streamOne(t, e)
	r.stop()
	eventually(t, "health is 503", func() bool { return r.health(t) == 503 })
	refused, err := post(t, t.Context(), r.client, r.url, ``)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(refused.Body)
	refused.Body.Close()
	checkFailure(t, refused.StatusCode, refused.Header, string(body), 503, nil, "shutting_down", "shutting down")
	e.step <- struct{}{}
	e.step <- struct{}{}
	body, err = io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		t.Errorf("stream ended with %v: %s", err, body)
	}
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	if !e.closed.Load() {
		t.Error("the engine was not closed")
	}
}

func TestDrainTimeoutTellsClients(t *testing.T) {
	e := steppedFake()
	r := start(t, newServer(t, nil, Config{DrainTimeout: 10 * time.Millisecond}), loaded(e))
	eventually(t, "ready", func() bool { return r.health(t) == 200 })
	resp := r.streamOne(t, e)
	r.stop()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	if text := string(body); !strings.Contains(text, `data: {"error":{"message":"the server is shutting down"`) ||
		strings.Contains(text, "[DONE]") || strings.Contains(text, `"finish_reason":"`) {
		t.Errorf("got %s", text)
	}
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
}

func TestDrainWhileLoading(t *testing.T) {
	loading := make(chan struct{})
	e := newFake()
	r := start(t, newServer(t, nil, Config{}), func(ctx context.Context) (Engine, error) {
		close(loading)
		<-ctx.Done()
		return e, nil // ready a moment too late
	})
	<-loading
	if got := r.health(t); got != 503 {
		t.Errorf("health is %d while loading", got)
	}
	r.stop()
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	if !e.closed.Load() {
		t.Error("the engine was not closed")
	}
}

func TestLoadFails(t *testing.T) {
	want := errors.New("no such model")
	r := start(t, newServer(t, nil, Config{}), func(context.Context) (Engine, error) { return nil, want })
	if err := r.wait(t); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if got := r.health(t); got != 0 {
		t.Errorf("still serving: %d", got)
	}
}

func TestListenErrors(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if _, err := Listen(t.Context(), "127.0.0.1", port); err == nil || !strings.Contains(err.Error(), l.Addr().String()+": ") {
		t.Errorf("a second listener: %v", err)
	}
	for _, port := range []int{-1, 70000} {
		if _, err := Listen(t.Context(), "127.0.0.1", port); err == nil || !strings.Contains(err.Error(), "0 to 65535") {
			t.Errorf("port %d: %v", port, err)
		}
	}
	if l, err := Listen(t.Context(), "[::1]", 0); err == nil {
		l.Close()
	} else if !strings.Contains(err.Error(), "[::1]:0") {
		t.Error(err)
	}
}

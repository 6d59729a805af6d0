package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/minisgl/minisgl/go/llm"
)

// TestA53_Drain: at the end running streams are answered to their last token,
// new work gets a 503, and so does whoever asks for health.
func TestA53_Drain(t *testing.T) {
	l, err := llm.New(t.Context(), llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 16384, Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	slow(t, l, time.Millisecond)
	r := start(t, newServer(t, nil, Config{DrainTimeout: time.Minute}), loaded(LLM{LLM: l}))
	eventually(t, "ready", func() bool { return r.health(t) == 200 })
	var streams sync.WaitGroup
	for range 20 {
		streams.Go(func() {
			resp, err := post(t, t.Context(), r.client, r.url, `"stream":true,"max_tokens":400,"ignore_eos":true,`)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if n := strings.Count(string(body), "data: "); err != nil || n != 402 || !strings.HasSuffix(string(body), "[DONE]\n\n") {
				t.Errorf("%d events, %v", n, err)
			}
		})
	}
	eventually(t, "all run", func() bool { return l.Stats().Running == 20 })
	r.stop()
	eventually(t, "health is 503", func() bool { return r.health(t) == 503 })
	resp, err := post(t, t.Context(), r.client, r.url, ``)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 {
		t.Errorf("new work while draining: status %d", resp.StatusCode)
	}
	streams.Wait()
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
}

// TestA54_Health: 503 until the model can answer and after the engine's end, and
// an answer while a batch runs, however long that takes; ports are claimed first.
func TestA54_Health(t *testing.T) {
	release := make(chan struct{})
	_, l := caseServer(t, Config{})
	r := start(t, newServer(t, nil, Config{}), func(context.Context) (Engine, error) {
		<-release
		return LLM{LLM: l}, nil
	})
	for _, path := range []string{"/health", "/v1/models", "/health_generate"} {
		eventually(t, path+" says that the model loads", func() bool {
			resp, err := r.client.Get(r.url + path)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			return resp.StatusCode == 503 && strings.Contains(string(body), "loading")
		})
	}
	port, err := strconv.Atoi(r.url[strings.LastIndex(r.url, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "127.0.0.1", port); err == nil || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("the port %d is claimed twice: %v", port, err)
	}
	close(release)
	eventually(t, "ready", func() bool { return r.health(t) == 200 })
	answered := make(chan struct{}) // a batch that lasts until health has answered
	var blocked atomic.Bool
	err = l.SetForwardHook(func(_ llm.BatchInfo, forward func() error) error {
		blocked.Store(true)
		<-answered
		return forward()
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string)
	go func() { ended <- send(t.Context(), r.client, r.url+chatPath, `{"max_tokens":1,`+hi+`}`) }()
	eventually(t, "a batch runs", func() bool { return blocked.Load() && r.health(t) == 200 })
	close(answered)
	if got := <-ended; !strings.Contains(got, `"finish_reason":"length"`) {
		t.Errorf("the answer is %s", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	send(t.Context(), r.client, r.url+completionsPath, `{"prompt":[1]}`)
	eventually(t, "health tells of the engine's end", func() bool { return r.health(t) == 503 })
	for _, port := range []int{-1, 70000} {
		if _, err := Listen(t.Context(), "127.0.0.1", port); err == nil || !strings.Contains(err.Error(), strconv.Itoa(port)) {
			t.Errorf("port %d: %v", port, err)
		}
	}
	for _, host := range []string{"::1", "[::1]"} {
		six, err := Listen(t.Context(), host, 0)
		if errors.Is(err, net.ErrClosed) || err != nil && strings.Contains(err.Error(), "cannot assign requested address") {
			t.Logf("no IPv6 here: %v", err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		six.Close()
	}
}

// TestA55_Metrics: after aborts and bad requests gauges are back at 0, counters
// have counted, and a model's odd name is escaped.
func TestA55_Metrics(t *testing.T) {
	name := "a\"b\\c\nd"
	s, l := caseServer(t, Config{ModelName: name})
	slow(t, l, time.Millisecond)
	url, client := listen(t, s)
	var clients sync.WaitGroup
	for i := range 100 {
		clients.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			send(ctx, client, url+chatPath, `{"max_tokens":400,"ignore_eos":true,"stream":true,`+hi+`}`)
		})
		clients.Go(func() { send(t.Context(), client, url+chatPath, `{"max_tokens":-1,`+hi+`}`) })
	}
	clients.Wait()
	clean(t, s)
	alive(t, s)
	text := do(s, "GET", "/metrics", "").Body.String()
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil {
		t.Error(problems, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) float64 {
		f := families[name]
		if f == nil || len(f.Metric) != 1 {
			t.Fatalf("%s is there %d times", name, len(f.GetMetric()))
		}
		m := f.Metric[0]
		if f.GetType() == dto.MetricType_COUNTER {
			return m.GetCounter().GetValue()
		}
		return m.GetGauge().GetValue()
	}
	for _, gauge := range []string{"sglang:num_running_reqs", "sglang:num_requests_running", "sglang:num_queue_reqs", "sglang:token_usage"} {
		if got := value(gauge); got != 0 {
			t.Errorf("idle, %s is %v", gauge, got)
		}
	}
	started, aborted := value("sglang:num_requests_total"), value("sglang:num_aborted_requests_total")
	if started < 2 || aborted < 1 || aborted > started-1 {
		t.Errorf("%v requests, %v of them aborted", started, aborted)
	}
	if label := families["sglang:num_running_reqs"].Metric[0].Label[0]; label.GetValue() != name {
		t.Errorf("the label %s is %q", label.GetName(), label.GetValue())
	}
}

// TestA56_Access: a preflight needs no key, all that generates or administers
// does, and readers that stop reading harm nobody.
func TestA56_Access(t *testing.T) {
	s := newServer(t, newFake(token("a", 1), atEOS(1)), Config{APIKey: "k", CORSOrigin: "*", ProfileDir: t.TempDir()})
	t.Cleanup(func() { _, _ = s.endProfile() }) // which the calls below may have begun
	request := func(method, path, body string, header map[string]string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "http://x")
		for name, value := range header {
			r.Header.Set(name, value)
		}
		return serve(s, r).Result()
	}
	preflight := request("OPTIONS", chatPath, "", map[string]string{"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"})
	if preflight.StatusCode/100 != 2 || preflight.Header.Get("Access-Control-Allow-Origin") != "*" || preflight.Header.Get("Access-Control-Allow-Headers") != "authorization" {
		t.Errorf("preflight: %d %v", preflight.StatusCode, preflight.Header)
	}
	for path, method := range map[string]string{
		chatPath: "POST", completionsPath: "POST", "/generate": "POST", "/abort_request": "POST", "/tokenize": "POST", "/detokenize": "POST",
		"/flush_cache": "POST", "/start_profile": "POST", "/stop_profile": "POST", "/v1/models": "GET", "/server_info": "GET",
		"/model_info": "GET", "/health_generate": "GET", "/nowhere": "GET", "/v1": "GET",
	} {
		for key, want := range map[string]bool{"": false, "Bearer wrong": false, "k": false, "Basic k": false, "bearer k": true, "Bearer k": true} {
			resp := request(method, path, `{}`, map[string]string{"Authorization": key})
			if allowed := resp.StatusCode != http.StatusUnauthorized; allowed != want || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%s %s with %q: status %d", method, path, key, resp.StatusCode)
			}
		}
	}
	if resp := request("GET", "/health", "", nil); resp.StatusCode != 200 {
		t.Errorf("/health without a key: %d", resp.StatusCode)
	}
}

// TestA56_StuckReaders: the clients that read get their answers while those that
// don't are given up.
func TestA56_StuckReaders(t *testing.T) {
	const stuck, normal = 20, 10
	text := strings.Repeat("x", 64<<10)
	var long []llm.Event // more than the connection's buffers hold
	for i := range 400 {
		long = append(long, token(text, i+1))
	}
	e := newFake()
	e.scripts = slices.Concat(slices.Repeat([][]llm.Event{long}, stuck), slices.Repeat([][]llm.Event{{token("a", 1), atEOS(1)}}, normal))
	url, client := listen(t, newServer(t, e, Config{WriteTimeout: 300 * time.Millisecond}))
	for range stuck {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		body := `{"stream":true,` + hi + `}`
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	}
	eventually(t, "all run", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.requests) == stuck })
	var readers sync.WaitGroup
	for range normal {
		readers.Go(func() {
			if got := send(t.Context(), client, url+chatPath, `{"stream":true,`+hi+`}`); !strings.HasSuffix(got, "data: [DONE]\n\n") {
				t.Errorf("a reader got %.200q", got)
			}
		})
	}
	readers.Wait()
	eventually(t, "the stuck ones are given up", func() bool { return e.live.Load() == 0 && e.aborted.Load() == stuck })
}

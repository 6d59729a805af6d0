package tracing

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collect is a collector in this process. It returns its URL and what it got.
func collect(t *testing.T) (url string, got func() map[string]*spans.Span) {
	var mu sync.Mutex
	list := map[string]*spans.Span{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &req) != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %d bytes, %v", r.URL.Path, len(body), err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					list[s.Name] = s
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() map[string]*spans.Span { mu.Lock(); defer mu.Unlock(); return list }
}

func at(seconds int64) time.Time { return time.Unix(seconds, 0) }

// send traces one request and returns its spans by name, as their beginning and
// end in seconds.
func send(t *testing.T, r Request, header http.Header) (map[string][2]int64, map[string]*spans.Span) {
	url, got := collect(t)
	tracer, err := New(t.Context(), url, "1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tracer.Done(tracer.Parent(t.Context(), header), r)
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	times := map[string][2]int64{}
	for name, s := range got() {
		times[name] = [2]int64{int64(s.StartTimeUnixNano / 1e9), int64(s.EndTimeUnixNano / 1e9)}
	}
	return times, got()
}

func TestPhases(t *testing.T) {
	header := http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	times, list := send(t, Request{ID: "r", Received: at(10), Begun: at(12), First: at(15), Ended: at(20), Finish: "stop", PromptTokens: 7}, header)
	want := map[string][2]int64{"llm_request": {10, 20}, "queue": {10, 12}, "prefill": {12, 15}, "decode": {15, 20}}
	if diff := cmp.Diff(want, times); diff != "" {
		t.Error(diff)
	}
	whole := list["llm_request"]
	if got := whole.ParentSpanId; string(got) != "\xb7\xad\x6b\x71\x69\x20\x33\x31" {
		t.Errorf("the caller's span is %x", got)
	}
	for _, name := range []string{"queue", "prefill", "decode"} {
		if string(list[name].ParentSpanId) != string(whole.SpanId) {
			t.Errorf("%s is not in the request's span", name)
		}
	}
	for _, a := range whole.Attributes {
		if a.Key == "gen_ai.usage.prompt_tokens" && a.Value.GetIntValue() != 7 {
			t.Errorf("prompt tokens: %v", a.Value)
		}
	}
}

func TestCutShort(t *testing.T) {
	times, list := send(t, Request{Received: at(10), Begun: at(11), Ended: at(14), Err: errors.New("gone")}, nil)
	want := map[string][2]int64{"llm_request": {10, 14}, "queue": {10, 11}, "prefill": {11, 14}}
	if diff := cmp.Diff(want, times); diff != "" {
		t.Error(diff)
	}
	if s := list["llm_request"].Status; s.GetCode() != spans.Status_STATUS_CODE_ERROR || s.Message != "gone" {
		t.Errorf("status %v", s)
	}
	times, _ = send(t, Request{Received: at(10), Ended: at(14)}, nil)
	if diff := cmp.Diff(map[string][2]int64{"llm_request": {10, 14}, "queue": {10, 14}}, times); diff != "" {
		t.Error(diff)
	}
}

func TestNoTracer(t *testing.T) {
	var tracer *Tracer
	tracer.Done(tracer.Parent(t.Context(), nil), Request{})
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, endpoint := range []string{"://", "127.0.0.1:4318", "grpc://host", ""} {
		if _, err := New(t.Context(), endpoint, "1", slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("the endpoint %q is taken", endpoint)
		}
	}
}

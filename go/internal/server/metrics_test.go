package server

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/minisgl/minisgl/go/llm"
)

var samplePattern = regexp.MustCompile(`(?m)^((?:sglang|minisgl):[a-z0-9_]+)\{model_name="org/fake"\} (\S+)$`)

// samples returns the values that /metrics has, but for histograms' buckets.
func samples(s *Server) map[string]string {
	values := map[string]string{}
	for _, match := range samplePattern.FindAllStringSubmatch(do(s, "GET", "/metrics", "").Body.String(), -1) {
		values[match[1]] = match[2]
	}
	return values
}

func check(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %s is %q, want %q", when, name, got[name], value)
		}
	}
}

func TestMetrics(t *testing.T) {
	e := newFake(token("a", 1), token("b", 2), atEOS(2))
	e.step = make(chan struct{})
	s := newServer(t, e, Config{})
	url, client := listen(t, s)
	idle := map[string]string{
		"sglang:num_running_reqs": "0", "sglang:num_requests_running": "0", "sglang:num_queue_reqs": "0", "sglang:num_requests_waiting": "0",
		"sglang:token_usage": "0.25", "sglang:num_used_tokens": "100", "sglang:max_total_num_tokens": "400", "sglang:cache_hit_rate": "0.25",
		"sglang:gen_throughput": "0", "sglang:generation_tokens_total": "0", "sglang:time_to_first_token_seconds_count": "0",
		"sglang:num_retracted_requests_total": "0", "sglang:spec_accept_length": "0", "sglang:spec_accept_rate": "0",
	}
	check(t, "idle", samples(s), idle)
	answered := make(chan string)
	go func() { answered <- send(t.Context(), client, url+"/generate", `{"text":["a","b"],"stream":true}`) }()
	eventually(t, "the requests run", func() bool { return e.live.Load() == 2 })
	check(t, "busy", samples(s), map[string]string{"sglang:num_running_reqs": "2", "sglang:num_requests_running": "2"})
	close(e.step)
	<-answered
	check(t, "after", samples(s), map[string]string{
		"sglang:num_running_reqs": "0", "sglang:prompt_tokens_total": "6", "sglang:cached_tokens_total": "2", "sglang:generation_tokens_total": "4",
		"sglang:num_requests_total": "2", "sglang:num_aborted_requests_total": "0", "sglang:time_to_first_token_seconds_count": "2",
		"sglang:inter_token_latency_seconds_count": "2", "sglang:e2e_request_latency_seconds_count": "2",
	})
}

func TestAbortsAreCounted(t *testing.T) {
	e := newFake(token("a", 1), llm.Event{Finish: llm.FinishAbort})
	s := newServer(t, e, Config{})
	for range 100 {
		do(s, "POST", "/generate", `{"text":"a"}`)
		do(s, "POST", "/generate", `{"text":""`)
	}
	check(t, "after aborts", samples(s), map[string]string{
		"sglang:num_running_reqs": "0", "sglang:num_aborted_requests_total": "100", "sglang:num_requests_total": "100",
		"sglang:e2e_request_latency_seconds_count": "0",
	})
}

func TestMetricsFormat(t *testing.T) {
	s := newServer(t, newFake(), Config{ModelName: "a\"b\\c\nd\xff"})
	w := do(s, "GET", "/metrics", "")
	if kind := w.Header().Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		t.Errorf("type %q", kind)
	}
	if !strings.Contains(w.Body.String(), `{model_name="a\"b\\c\nd`+"\ufffd"+`"} 0`) {
		t.Errorf("the label is not escaped:\n%s", w.Body)
	}
	problems, err := promlint.New(w.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.Contains(p.Text, "should not contain ':'") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestMeterForgets(t *testing.T) {
	var m meter
	now := time.Unix(1000, 0)
	for i := range 10 {
		m.add(now.Add(time.Duration(i) * time.Second / 5))
	}
	for _, test := range []struct {
		after time.Duration
		want  float64
	}{{time.Second, 2}, {4 * time.Second, 2}, {5 * time.Second, 1}, {6 * time.Second, 0}, {time.Hour, 0}} {
		if got := m.perSecond(now.Add(test.after)); got != test.want {
			t.Errorf("after %v: %v per second, want %v", test.after, got, test.want)
		}
	}
}

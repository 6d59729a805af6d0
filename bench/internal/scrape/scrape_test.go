package scrape

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
)

const page = `# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="a b}c"} 3.0
sglang:num_running_reqs{model_name="m",tp="0"} 2
sglang:num_running_reqs{model_name="m",tp="1"} 5 1700000000
ttft_bucket{le="0.1"} 9
ttft_sum 1.5e-3
broken
broken2 x
`

func TestParse(t *testing.T) {
	got := Parse([]byte(page))
	want := Sample{"sglang:num_queue_reqs": 3, "sglang:num_running_reqs": 7, "ttft_sum": 0.0015}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	queue, ok := got.Queue()
	running, _ := got.Running()
	if !ok || queue != 3 || running != 7 {
		t.Errorf("queue %v, running %v", queue, running)
	}
	if _, ok := (Sample{"x": 1}).Queue(); ok {
		t.Error("a queue of nothing")
	}
	changes := Diff(Sample{"a": 1, "b": 2}, Sample{"a": 1, "b": 5, "c": 1})
	if diff := cmp.Diff([]Change{{"b", 2, 5}, {"c", 0, 1}}, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestWatch(t *testing.T) {
	mock := mockserver.New(mockserver.Config{PromptTokens: 8, CachedTokens: 6})
	server := httptest.NewServer(mock)
	defer server.Close()
	client := loadgen.NewHTTP(loadgen.HTTPOptions{})
	defer client.Close()
	stop := Watch(t.Context(), client, server.URL, time.Millisecond)
	for Fetch(t.Context(), client, server.URL) == nil {
		t.Fatal("no metrics")
	}
	client.Do(t.Context(), loadgen.Call{URL: server.URL + "/generate", Body: []byte(`{"text":"a","stream":true,"sampling_params":{"max_new_tokens":1}}`)})
	load := stop()
	if load.MaxQueue != 0 || load.MeanQueue != 0 || load.Prompt != 8 || load.Cached != 6 {
		t.Errorf("%+v, want a server without a queue and 6 of 8 prompt tokens from its cache", load)
	}
	if rate, ok := load.HitRate(); !ok || rate != 0.75 {
		t.Errorf("hit rate %v, %v", rate, ok)
	}
	if _, ok := new(Load).HitRate(); ok {
		t.Error("a hit rate of nothing")
	}
	if Fetch(t.Context(), client, "http://127.0.0.1:1") != nil {
		t.Error("metrics of no server")
	}
}

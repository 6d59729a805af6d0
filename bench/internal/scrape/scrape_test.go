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
	server := httptest.NewServer(mockserver.New(mockserver.Config{}))
	defer server.Close()
	client := loadgen.NewHTTP(loadgen.HTTPOptions{})
	defer client.Close()
	stop := Watch(t.Context(), client, server.URL, time.Millisecond)
	for Fetch(t.Context(), client, server.URL) == nil {
		t.Fatal("no metrics")
	}
	time.Sleep(20 * time.Millisecond)
	if load := stop(); load.MaxQueue != 0 || load.MeanQueue != 0 {
		t.Errorf("%+v, want an idle server", load)
	}
	if Fetch(t.Context(), client, "http://127.0.0.1:1") != nil {
		t.Error("metrics of no server")
	}
}

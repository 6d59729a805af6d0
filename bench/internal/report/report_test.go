package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/record"
)

var update = flag.Bool("update", false, "rewrite the golden files of the notes table")

func stats(mean, median, p90, p95, p99, highest float64) metrics.Stats {
	return metrics.Stats{Count: 20, Mean: mean, Median: median, P90: p90, P95: p95, P99: p99, Max: highest}
}

// sglangRun has the figures of a run of sglang 0.5.23's own benchmark, whose
// output is testdata/sglang_serving.txt.
func sglangRun() *Result {
	return &Result{
		Backend: "sglang",
		Rate:    20,
		Summary: metrics.Summary{
			Completed: 20, Duration: 1260 * time.Millisecond, InputTokens: 976, InputKnown: true, OutputTokens: 499,
			RequestThroughput: 15.91, InputThroughput: 776.18, OutputThroughput: 396.84, TotalThroughput: 1173.02,
			PeakOutput: 449, PeakConcurrency: 18, Concurrency: 2.86, Retokenized: -1,
			E2E:  stats(179.76, 182.85, 210.75, 221.69, 223.72, 0),
			TTFT: stats(63.32, 55.44, 84.78, 94.31, 106.13, 0),
			TPOT: stats(4.84, 4.98, 5.10, 5.14, 5.49, 0),
			ITL:  stats(4.86, 4.69, 8.43, 10.71, 28, 35.16),
		},
	}
}

func TestTableIsSglangs(t *testing.T) {
	want, err := os.ReadFile("testdata/sglang_serving.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := WriteTable(&got, sglangRun()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// A run without a success still has a table of the same rows.
func TestTableOfFailures(t *testing.T) {
	var full, empty bytes.Buffer
	if err := WriteTable(&full, sglangRun()); err != nil {
		t.Fatal(err)
	}
	r := &Result{Backend: "sglang", Rate: math.Inf(1), MaxConcurrency: 4, Summary: metrics.Summarize([]record.Record{{Kind: record.Connect, Done: time.Second}})}
	if err := WriteTable(&empty, r); err != nil {
		t.Fatal(err)
	}
	fullLines, lines := strings.Split(full.String(), "\n"), strings.Split(empty.String(), "\n")
	if len(lines) != len(fullLines) {
		t.Fatalf("%d lines, want %d", len(lines), len(fullLines))
	}
	for i := range lines {
		if got, want := label(lines[i]), label(fullLines[i]); got != want {
			t.Errorf("line %d is %q, want %q", i+1, got, want)
		}
	}
	for _, want := range []string{
		"Traffic request rate:                    inf       \n",
		"Max request concurrency:                 4         \n",
		"Successful requests:                     0         \n",
		"Request throughput (req/s):              0.00      \n",
		"P99 TTFT (ms):                           n/a       \n",
		"Max ITL (ms):                            n/a       \n",
	} {
		if !strings.Contains(empty.String(), want) {
			t.Errorf("%q is missing in\n%s", want, empty.String())
		}
	}
	if strings.Contains(empty.String(), "NaN") {
		t.Error("NaN in the table")
	}
}

func label(line string) string { return line[:min(40, len(line))] }

func TestPythonFloat(t *testing.T) {
	// As printed by CPython: str(v).
	for v, want := range map[float64]string{
		8: "8.0", 0.5: "0.5", 1e9: "1000000000.0", 1e16: "1e+16", 123456789012345680: "1.2345678901234568e+17",
		0.0001: "0.0001", 0.00001: "1e-05", math.Inf(1): "inf",
	} {
		if got := pythonFloat(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

func failedRun() *Result {
	return &Result{
		Backend: "sglang-oai-chat", Rate: 8, NumRequests: 64, MaxTokens: 128, Interrupted: true,
		Summary: metrics.Summary{
			Sent: 20, Completed: 14, Failed: 6, ShortOutputs: 3, InputKnown: true, Retokenized: -1,
			Failures: []metrics.Failure{
				{Label: "http 500", Count: 4, First: "500 Internal Server Error: {\"error\":{\"message\":\"out of pages: wanted 12, have 3\"}}"},
				{Label: "timeout", Count: 2, First: "nothing arrived for\x1b[31m 5m"},
			},
			Sources:       map[record.TokenSource]int{record.Chunks: 2, record.ContinuousUsage: 12},
			ScheduledRate: 7.25, SentRate: 7.19, MaxLag: 1234 * time.Microsecond, QueuedE2E: stats(0, 0, 0, 0, 6111, 0),
		},
	}
}

func TestNotes(t *testing.T) {
	all := failedRun()
	all.Rate, all.Interrupted, all.Summary = math.Inf(1), false, metrics.Summarize([]record.Record{{Kind: record.Connect, Err: "connection refused"}})
	for name, r := range map[string]*Result{"notes_partial": failedRun(), "notes_all_failed": all} {
		var got bytes.Buffer
		if err := WriteNotes(&got, r); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for line := range strings.Lines(got.String()) {
			if width := utf8.RuneCountInString(line) - 1; width > 80 {
				t.Errorf("%s: a line is %d wide: %s", name, width, line)
			}
		}
	}
}

// sglangKeys are the keys of a line of sglang 0.5.23 that have a meaning here.
var sglangKeys = strings.Fields(`tag backend dataset_name request_rate max_concurrency sharegpt_output_len random_input_len random_output_len random_range_ratio server_info duration completed total_input_tokens
	total_input_text_tokens total_input_vision_tokens total_output_tokens total_output_tokens_retokenized request_throughput
	input_throughput output_throughput total_throughput concurrency accept_length max_output_tokens_per_s max_concurrent_requests
	mean_e2e_latency_ms median_e2e_latency_ms std_e2e_latency_ms p90_e2e_latency_ms p95_e2e_latency_ms p99_e2e_latency_ms
	mean_ttft_ms median_ttft_ms std_ttft_ms p90_ttft_ms p95_ttft_ms p99_ttft_ms mean_tpot_ms median_tpot_ms std_tpot_ms p90_tpot_ms
	p95_tpot_ms p99_tpot_ms mean_itl_ms median_itl_ms std_itl_ms p90_itl_ms p95_itl_ms p99_itl_ms`)

var sglangDetails = strings.Fields("input_lens output_lens ttfts itls generated_texts errors")

func TestJSON(t *testing.T) {
	records := []record.Record{
		{Start: time.Second, Tokens: []time.Duration{2 * time.Second, 4 * time.Second}, FirstChunk: 1, InputLen: -1, PromptTokens: 7, Text: "ab"},
		{Kind: record.Connect, Err: "refused", InputLen: -1, PromptTokens: -1},
	}
	r := &Result{Backend: "b", Rate: math.Inf(1), Summary: metrics.Summarize(records)}
	var buf bytes.Buffer
	if err := WriteJSON(&buf, r, records); err != nil {
		t.Fatal(err)
	}
	if strings.Count(buf.String(), "\n") != 1 {
		t.Error("want one line")
	}
	var got map[string]any
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatalf("not JSON: %v", err)
	}
	for _, key := range slices.Concat(sglangKeys, sglangDetails) {
		if _, ok := got[key]; !ok {
			t.Errorf("key %q is missing", key)
		}
	}
	want := map[string]any{
		"request_rate": "inf", "max_concurrency": nil, "completed": 1.0, "failed": 1.0, "total_output_tokens": 2.0,
		"mean_ttft_ms": 1000.0, "mean_itl_ms": 2000.0, "mean_e2e_latency_ms": 3000.0,
		"output_lens": []any{2.0, 0.0}, "ttfts": []any{1.0, nil}, "itls": []any{[]any{2.0}, []any{}}, "errors": []any{"", "refused"},
		"failures": []any{map[string]any{"kind": "connect", "count": 1.0, "first_error": "refused"}},
	}
	for key, value := range want {
		if diff := cmp.Diff(value, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

func TestJSONWithoutSamples(t *testing.T) {
	r := &Result{Rate: 8, Summary: metrics.Summarize(nil)}
	var buf bytes.Buffer
	if err := WriteJSON(&buf, r, nil); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatalf("not JSON: %v", err)
	}
	for _, key := range []string{"mean_ttft_ms", "p99_itl_ms", "request_throughput", "concurrency"} {
		if v, ok := got[key]; !ok || v != nil {
			t.Errorf("%s is %v, want null", key, v)
		}
	}
	for _, key := range sglangDetails {
		if _, ok := got[key]; ok {
			t.Errorf("details were not asked for, but %s is there", key)
		}
	}
}

// The blocks that sglang prints only when asked, in its order and layout.
func TestTableBlocks(t *testing.T) {
	r := sglangRun()
	r.Trace, r.AcceptLength, r.CacheReport, r.ServerInput, r.CachedTokens = true, 2.5, true, 141, 47
	r.Goodput = &metrics.Goodput{SLOs: []metrics.SLO{{Name: "ttft", Limit: 60}, {Name: "tpot", Limit: 6.5}}, Good: 5, Sent: 20, Met: []int{10, 20}, Rate: 3.97}
	var got bytes.Buffer
	if err := WriteTable(&got, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Traffic request rate:                    trace     \n",
		`Concurrency:                             2.86      
Accept length:                           2.50      
---------------------Goodput----------------------
SLOs (ms):                               ttft:60 tpot:6.5
Request goodput (req/s):                 3.97      
SLO attainment (%):                      25.00     
TTFT SLO attainment (%):                 50.00     
TPOT SLO attainment (%):                 100.00    
----------------End-to-End Latency----------------
`,
		`Max ITL (ms):                            35.16     
----------------Cache Hit Details-----------------
Total prompt tokens:                     141       
Total cached tokens:                     47        
Cache hit rate:                          33.3%
==================================================
`,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is missing in\n%s", want, got.String())
		}
	}
}

// The rows of vLLM's table, with its spelling.
func TestVLLMTable(t *testing.T) {
	r := &Result{Rate: 20, MaxConcurrency: 8, Goodput: &metrics.Goodput{Rate: 15.72}, Summary: metrics.Summary{
		Completed: 20, Duration: 1210 * time.Millisecond, InputTokens: 1280, InputKnown: true, OutputTokens: 640,
		RequestThroughput: 16.55, OutputThroughput: 529.65, TotalThroughput: 1588.95, PeakOutput: 585, PeakConcurrency: 20,
		TTFT: stats(58.01, 55.95, 0, 0, 81.04, 0), TPOT: stats(4.8, 4.9, 0, 0, 5.5, 0), ITL: stats(4.7, 4.6, 0, 0, 9.5, 0), E2E: stats(208, 206, 0, 0, 240, 0),
	}}
	var got bytes.Buffer
	if err := WriteVLLMTable(&got, r); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/vllm_serving.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

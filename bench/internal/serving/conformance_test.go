package serving

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

// The tests of this file, TestA01 to TestB18, are the known defects of load
// generators for language models: A were reproduced with current releases of
// sglang's and vLLM's clients, B are reported in public. A18 is in
// onebatchserver, A14 and B01 are in loadgen.

const ms = time.Millisecond

// outcome is a run of the program against a mock server in memory, on a clock
// that only moves when client and server wait: its times are exact.
type outcome struct {
	code           int
	stdout, stderr string
	line           map[string]any // of the result file
	bodies         []string
	peak           int // requests in flight at the server
}

func (o *outcome) number(t *testing.T, key string) float64 {
	t.Helper()
	v, ok := o.line[key].(float64)
	if !ok {
		t.Errorf("%s is %v, want a number", key, o.line[key])
	}
	return v
}

// want compares figures of the result file; nil is null.
func (o *outcome) want(t *testing.T, figures map[string]any) {
	t.Helper()
	for key, want := range figures {
		if diff := cmp.Diff(want, o.line[key], cmpopts.EquateApprox(1e-9, 1e-9)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

func conform(t *testing.T, cfg mockserver.Config, args string) *outcome {
	t.Helper()
	o := &outcome{}
	file := filepath.Join(t.TempDir(), "out.jsonl")
	synctest.Test(t, func(t *testing.T) {
		hosts := benchtest.Hosts{}
		defer hosts.Close()
		server := hosts.Listen("mock", cfg)
		p := program.Program{Name: "serving", Lists: Lists, Command: func() *cobra.Command { return (&command{o: Options{Dial: hosts.Dial}}).command() }}
		fixed := "--base-url http://mock --dataset-name random-ids --random-input-len 4 --random-output-len 8 --random-range-ratio 1 --warmup-requests 0 --output-details --output-file " + file
		o.code, o.stdout, o.stderr = benchtest.Output(t.Context(), p, strings.Fields(fixed+" "+args)...)
		o.bodies, o.peak = server.Bodies(), server.PeakInFlight()
	})
	if data, err := os.ReadFile(file); err == nil && len(data) > 0 {
		if err := json.Unmarshal(data, &o.line); err != nil {
			t.Errorf("the result is not JSON: %v", err)
		}
	}
	return o
}

// streaming are the backends that report counts and tokens one way or the other.
var streaming = []string{"sglang", "sglang-oai", "sglang-oai-chat", "vllm", "vllm-chat", "openai", "lmdeploy", "minisgl-ws"}

// write makes a file for a test.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Four tokens in a chunk, 20 ms apart, are 5 ms a token.
func TestA01_LatencyIsPerTokenNotPerChunk(t *testing.T) {
	for _, backend := range streaming {
		o := conform(t, mockserver.Config{TTFT: 20 * ms, ITL: 5 * ms, TokensPerChunk: 4}, "--num-prompts 2 --random-output-len 100 --backend "+backend)
		o.want(t, map[string]any{"mean_itl_ms": 5.0, "p99_itl_ms": 5.0, "total_output_tokens": 200.0})
	}
}

func TestA02_PeakThroughputCountsTokens(t *testing.T) {
	for _, backend := range streaming {
		o := conform(t, mockserver.Config{ITL: 5 * ms, TokensPerChunk: 4}, "--num-prompts 1 --random-output-len 100 --backend "+backend)
		o.want(t, map[string]any{"max_output_tokens_per_s": 100.0})
	}
}

func TestA03_PeakConcurrencyIsExact(t *testing.T) {
	for _, limit := range []int{1, 8} {
		o := conform(t, mockserver.Config{TTFT: 10 * ms, ITL: ms}, fmt.Sprintf("--num-prompts 40 --max-concurrency %d", limit))
		o.want(t, map[string]any{"max_concurrent_requests": float64(limit)})
		if o.peak != limit {
			t.Errorf("%d at the server, want %d", o.peak, limit)
		}
	}
}

func TestA04_FailuresAreShown(t *testing.T) {
	cfg := mockserver.Config{FailEvery: 5}
	o := conform(t, cfg, "--num-prompts 20")
	benchtest.WantLines(t, o.stdout, `^Successful requests:                     16        $`, `Requests sent / failed +│ 20 / 4 `, `Failed: http 500 +│ 4, first: 500 Internal Server`)
	o.want(t, map[string]any{"completed": 16.0, "failed": 4.0})
	if o.code != program.ExitOK {
		t.Errorf("exit code %d with some failed", o.code)
	}
	if o = conform(t, cfg, "--num-prompts 20 --max-error-rate 0.1"); o.code != program.ExitFailed {
		t.Errorf("exit code %d with more failed than allowed", o.code)
	}
}

func TestA05_AllFailedStillHasATable(t *testing.T) {
	o := conform(t, mockserver.Config{FailEvery: 1}, "--num-prompts 3")
	benchtest.WantLines(t, o.stdout, `^Successful requests:                     0         $`, `^Mean TTFT \(ms\):                          n/a       $`, `^P99 E2E Latency \(ms\):                    n/a       $`)
	o.want(t, map[string]any{"mean_ttft_ms": nil, "p99_itl_ms": nil, "completed": 0.0})
	if o.code != program.ExitFailed {
		t.Errorf("exit code %d", o.code)
	}
}

func TestA06_ChunksWithoutChoices(t *testing.T) {
	for _, backend := range streaming {
		o := conform(t, mockserver.Config{Usage: mockserver.UsageFinal, PromptTokens: 9}, "--num-prompts 2 --backend "+backend+" --extra-request-body {\"stream_options\":{\"include_usage\":true}}")
		o.want(t, map[string]any{"completed": 2.0, "total_output_tokens": 16.0, "server_prompt_tokens": 18.0})
	}
}

func TestA07_TraceTimesOnEveryBackend(t *testing.T) {
	path := write(t, `{"timestamp":0,"input_length":3,"output_length":2,"hash_ids":[1]}`+"\n"+`{"timestamp":100,"input_length":4,"output_length":2,"hash_ids":[1]}`+"\n")
	for _, backend := range append(streaming, "trt", "minisgl") {
		for _, args := range []string{"", "--use-trace-timestamps --request-rate 7"} {
			o := conform(t, mockserver.Config{}, "--dataset-name mooncake --mooncake-slowdown-factor 0.5 --num-prompts 5 --dataset-path "+path+" --backend "+backend+" "+args)
			o.want(t, map[string]any{"start_times": []any{0.0, 0.05}, "request_rate": "trace", "total_output_tokens": 4.0})
		}
	}
	o := conform(t, mockserver.Config{}, "--use-trace-timestamps")
	if o.code != program.ExitUsage {
		t.Errorf("without a trace: exit code %d", o.code)
	}
}

// Requests that take a second do not hold back those of the next two milliseconds.
func TestA08_ArrivalsDoNotDrift(t *testing.T) {
	o := conform(t, mockserver.Config{TTFT: time.Second}, "--num-prompts 500 --random-output-len 1 --request-rate 500")
	if diff := cmp.Diff(o.line["intended_times"], o.line["start_times"]); diff != "" {
		t.Errorf("start times (-intended +actual):\n%s", diff)
	}
	o.want(t, map[string]any{"sent_request_rate": o.line["scheduled_request_rate"], "max_client_lag_ms": 0.0})
}

func TestA09_EarlyEndsAreNotTheLengthAsked(t *testing.T) {
	for _, usage := range []mockserver.Usage{mockserver.UsageContinuous, mockserver.UsageFinal, mockserver.UsageNever} {
		for _, backend := range streaming {
			if backend == "sglang" && usage == mockserver.UsageNever {
				continue // its API always counts
			}
			o := conform(t, mockserver.Config{TTFT: 20 * ms, ITL: 5 * ms, EOSAfter: 10, Usage: usage}, "--num-prompts 8 --random-output-len 100 --backend "+backend)
			o.want(t, map[string]any{"total_output_tokens": 80.0, "mean_tpot_ms": 5.0})
			benchtest.WantLines(t, o.stdout, `Short outputs +│ 8 answers have fewer`)
		}
	}
}

func TestA10_ErrorsInTheStreamAreFailures(t *testing.T) {
	for _, backend := range append(streaming, "trt") {
		o := conform(t, mockserver.Config{ErrorAfter: 3}, "--num-prompts 4 --backend "+backend)
		o.want(t, map[string]any{"completed": 0.0, "failed": 4.0, "total_output_tokens": 0.0, "output_lens": []any{3.0, 3.0, 3.0, 3.0}})
		benchtest.WantLines(t, o.stdout, `Failed: stream error +│ 4, first: planned stream error`)
	}
}

func TestA11_CommentsAndNoSpace(t *testing.T) {
	for _, cfg := range []mockserver.Config{{Comments: true}, {NoSpace: true}} {
		for _, backend := range streaming {
			conform(t, cfg, "--num-prompts 2 --backend "+backend).want(t, map[string]any{"completed": 2.0, "total_output_tokens": 16.0})
		}
	}
}

func TestA12_CRLF(t *testing.T) {
	for _, newline := range []string{"\r\n", "\r"} {
		for _, backend := range streaming {
			o := conform(t, mockserver.Config{TTFT: 20 * ms, ITL: 5 * ms, Newline: newline, OneByte: true}, "--num-prompts 1 --random-output-len 32 --backend "+backend)
			o.want(t, map[string]any{"completed": 1.0, "total_output_tokens": 32.0, "mean_itl_ms": 5.0})
		}
	}
}

// 20 requests per second to a server that takes one each 200 ms: who comes last waits long.
func TestA13_QueueingIsNotOmitted(t *testing.T) {
	o := conform(t, mockserver.Config{TTFT: 200 * ms}, "--num-prompts 40 --random-output-len 1 --request-rate 20 --max-concurrency 1")
	o.want(t, map[string]any{"p99_e2e_latency_ms": 200.0})
	if last := 40*200 - 1000*o.line["intended_times"].([]any)[39].(float64); o.number(t, "p99_queued_e2e_latency_ms") < 0.95*last {
		t.Errorf("P99 with queueing is %v ms, the last request was answered %v ms after it was due", o.line["p99_queued_e2e_latency_ms"], last)
	}
	benchtest.WantLines(t, o.stdout, `P99 E2E with queueing +│ \d{4}\.\d\d ms, from the intended start`)
}

func TestA15_OneTokenHasNoGaps(t *testing.T) {
	for _, args := range []string{"--random-output-len 1", "--disable-stream"} {
		o := conform(t, mockserver.Config{TTFT: 20 * ms}, "--num-prompts 2 "+args)
		benchtest.WantLines(t, o.stdout, `^Mean TPOT \(ms\):                          n/a       $`, `^Mean ITL \(ms\):                           n/a       $`)
		o.want(t, map[string]any{"completed": 2.0, "mean_tpot_ms": nil, "mean_itl_ms": nil, "median_itl_ms": nil})
		if args == "--disable-stream" {
			o.want(t, map[string]any{"mean_ttft_ms": nil, "total_output_tokens": 16.0})
		}
	}
}

func TestA16_ConversationsHaveInputTokens(t *testing.T) {
	o := conform(t, mockserver.Config{TTFT: 500 * ms, PromptTokens: 7}, "--backend sglang-oai-chat --dataset-name multi-turn --num-turns 2 --num-prompts 3")
	o.want(t, map[string]any{"total_input_tokens": 42.0, "completed": 6.0, "input_throughput": 42.0})
}

func TestA17_TheResultIsJSON(t *testing.T) {
	conform(t, mockserver.Config{}, "--num-prompts 1").want(t, map[string]any{"request_rate": "inf"})
	conform(t, mockserver.Config{}, "--num-prompts 1 --request-rate 20").want(t, map[string]any{"request_rate": 20.0})
}

func TestB02_LongLines(t *testing.T) {
	o := conform(t, mockserver.Config{TextBytes: 200 << 10}, "--num-prompts 1 --disable-retokenize --backend sglang-oai")
	o.want(t, map[string]any{"completed": 1.0, "total_output_tokens": 8.0})
}

// Text may have other tokens at the server; ids may not.
func TestB03_PromptTokensAreTheServers(t *testing.T) {
	o := conform(t, mockserver.Config{PromptTokens: 7}, "--num-prompts 2 --disable-retokenize")
	benchtest.WantLines(t, o.stdout, `Prompt tokens +│ the server counted 14`)
	o.want(t, map[string]any{"total_input_tokens": 8.0, "server_prompt_tokens": 14.0})
	o = conform(t, mockserver.Config{PromptTokens: 7}, "--num-prompts 2 --tokenize-prompt")
	o.want(t, map[string]any{"total_input_tokens": 8.0, "server_prompt_tokens": 8.0})
}

func TestB04_PromptsAreNeverEmpty(t *testing.T) {
	for _, body := range conform(t, mockserver.Config{}, "--num-prompts 20 --random-input-len 1 --random-range-ratio 0").bodies {
		if !strings.Contains(body, `"text":"t`) {
			t.Errorf("an empty prompt: %s", body)
		}
	}
}

func TestB05_WarmUpHasPromptsOfItsOwn(t *testing.T) {
	o := conform(t, mockserver.Config{CachedTokens: 2, PromptTokens: 4}, "--num-prompts 2 --warmup-requests 6")
	seen := map[string]bool{}
	for _, body := range o.bodies {
		if seen[body] {
			t.Errorf("sent twice: %s", body)
		}
		seen[body] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d requests, want 8", len(seen))
	}
	benchtest.WantLines(t, o.stdout, `Cached prompt tokens +│ 4 of 8 \(50\.0%\)`)
}

func TestB06_WarmUpKeepsToTheLimit(t *testing.T) {
	if o := conform(t, mockserver.Config{TTFT: 20 * ms}, "--num-prompts 2 --warmup-requests 6 --max-concurrency 2"); o.peak != 2 {
		t.Errorf("%d in flight, want 2", o.peak)
	}
}

func TestB07_EmptyTextStillHasTokens(t *testing.T) {
	for _, backend := range streaming {
		o := conform(t, mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, EmptyText: 100}, "--num-prompts 1 --backend "+backend)
		o.want(t, map[string]any{"mean_ttft_ms": 50.0, "mean_itl_ms": 5.0, "total_output_tokens": 8.0})
	}
}

func TestB08_ReasoningCounts(t *testing.T) {
	o := conform(t, mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, Reasoning: true, RoleChunk: true, Usage: mockserver.UsageNever}, "--num-prompts 1 --backend openai-chat")
	o.want(t, map[string]any{"mean_ttft_ms": 50.0, "total_output_tokens": 8.0})
}

func TestB09_DeliveredLoadIsShown(t *testing.T) {
	o := conform(t, mockserver.Config{TTFT: 100 * ms}, "--num-prompts 50 --random-output-len 1 --request-rate 100 --max-concurrency 4")
	o.want(t, map[string]any{"max_concurrent_requests": 4.0})
	if rate := o.number(t, "sent_request_rate"); rate > 45 || o.peak != 4 {
		t.Errorf("sent at %v req/s with %d in flight; the limit of 4 allows 40", rate, o.peak)
	}
	benchtest.WantLines(t, o.stdout, `Request rate +│ offered 100\.0 req/s \(this schedule: \d+\.\d+\),`, `achieved [34]\d\.\d\d `)
}

func TestB10_NoRequestIsLost(t *testing.T) {
	for args, label := range map[string]string{"--timeout 2s": "no complete answer after 2s", "--idle-timeout 1s": "nothing arrived for 1s"} {
		o := conform(t, mockserver.Config{StallAfter: 2}, "--num-prompts 5 "+args)
		o.want(t, map[string]any{"sent": 5.0, "completed": 0.0, "failed": 5.0})
		benchtest.WantLines(t, o.stdout, `Failed: timeout +│ 5, first:`)
		if errs := o.line["errors"].([]any); !strings.Contains(errs[0].(string), label) {
			t.Errorf("%s: %v", args, errs[0])
		}
	}
}

func TestB11_ITLHasNoFirstToken(t *testing.T) {
	o := conform(t, mockserver.Config{TTFT: 500 * ms, ITL: 5 * ms}, "--num-prompts 3")
	o.want(t, map[string]any{"mean_itl_ms": 5.0, "max_itl_ms": 5.0, "mean_tpot_ms": 5.0})
	if itls := o.line["itls"].([]any)[0].([]any); len(itls) != 7 {
		t.Errorf("%d gaps between 8 tokens", len(itls))
	}
}

func TestB12_LatencyEndsAtTheLastToken(t *testing.T) {
	for _, backend := range streaming {
		o := conform(t, mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, EndDelay: time.Second}, "--num-prompts 1 --backend "+backend)
		o.want(t, map[string]any{"mean_e2e_latency_ms": 85.0})
		o = conform(t, mockserver.Config{ErrorAfter: 3, ErrorEvent: true}, "--num-prompts 1 --backend "+backend)
		o.want(t, map[string]any{"completed": 0.0, "failed": 1.0})
	}
}

func TestB13_TracesAreStableAndRebased(t *testing.T) {
	path := write(t, `{"timestamp":5000,"input_length":30,"output_length":2,"hash_ids":[1,2]}`+"\n"+`{"timestamp":5010,"input_length":30,"output_length":2,"hash_ids":[1,3]}`+"\n")
	args := "--dataset-name mooncake --num-prompts 5 --dataset-path " + path
	a, b := conform(t, mockserver.Config{}, args), conform(t, mockserver.Config{}, args)
	a.want(t, map[string]any{"intended_times": []any{0.0, 0.01}})
	if diff := cmp.Diff(a.bodies, b.bodies); diff != "" || len(a.bodies) != 2 {
		t.Errorf("two runs differ:\n%s", diff)
	}
}

// Conversations begin when they are due, however long their turns take.
func TestB14_ConversationsKeepTheirRate(t *testing.T) {
	o := conform(t, mockserver.Config{TTFT: 3 * time.Second}, "--backend sglang-oai-chat --dataset-name multi-turn --num-turns 2 --num-prompts 20 --request-rate 2")
	starts, due := o.line["start_times"].([]any), o.line["intended_times"].([]any)
	for i := range starts {
		if starts[i] != due[i] || i%2 == 1 && starts[i].(float64)-starts[i-1].(float64) < 3-1e-9 {
			t.Errorf("request %d is due at %v, sent at %v, the turn before at %v", i, due[i], starts[i], starts[max(i-1, 0)])
		}
	}
}

// A recorded length is kept, and a round waits for the answer before it.
func TestB15_MooncakeLengthsAndRounds(t *testing.T) {
	path := write(t, `{"timestamp":0,"input_length":600,"output_length":2,"hash_ids":[1,2]}`)
	o := conform(t, mockserver.Config{}, "--dataset-name mooncake --tokenize-prompt --num-prompts 1 --dataset-path "+path)
	o.want(t, map[string]any{"total_input_tokens": 600.0, "server_prompt_tokens": 600.0})
	o = conform(t, mockserver.Config{TTFT: 100 * ms}, "--backend vllm-chat --dataset-name mooncake --mooncake-num-rounds 2 --num-prompts 1 --dataset-path "+path)
	o.want(t, map[string]any{"start_times": []any{0.0, 0.1}})
	if !strings.Contains(o.bodies[1], `{"content":" t0 t1","role":"assistant"}`) || !strings.Contains(o.bodies[1], "Round 2: ") {
		t.Errorf("the second round is %s", o.bodies[1])
	}
}

func TestB16_FewRequestsAreTooFewForP99(t *testing.T) {
	for n, warned := range map[int]bool{99: true, 100: false} {
		o := conform(t, mockserver.Config{}, fmt.Sprintf("--num-prompts %d --random-output-len 1", n))
		if got := strings.Contains(o.stdout, "requests are too few to"); got != warned {
			t.Errorf("%d requests: warning %v, want %v", n, got, warned)
		}
	}
}

func TestB17_CutStreamsAreFailures(t *testing.T) {
	for _, backend := range append(streaming, "trt") {
		o := conform(t, mockserver.Config{CutAfter: 3}, "--num-prompts 2 --backend "+backend)
		o.want(t, map[string]any{"completed": 0.0, "failed": 2.0})
		o = conform(t, mockserver.Config{OneByte: true}, "--num-prompts 2 --backend "+backend)
		o.want(t, map[string]any{"completed": 2.0, "failed": 0.0})
	}
}

func TestB18_DetailsOnlyWhenAskedForAndErrorsWithTheirBody(t *testing.T) {
	o := conform(t, mockserver.Config{FailEvery: 2}, "--num-prompts 2 --output-details=false")
	for _, key := range []string{"input_lens", "output_lens", "ttfts", "itls", "start_times", "latencies", "generated_texts", "errors"} {
		if v, ok := o.line[key]; ok {
			t.Errorf("%s is there: %v", key, v)
		}
	}
	if text := fmt.Sprint(o.line["failures"]); !strings.Contains(text, "planned failure") {
		t.Errorf("failures %s", text)
	}
}

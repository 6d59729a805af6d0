package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output runs the program without a result file, unless args name one.
func output(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	return benchtest.Output(ctx, Program, append([]string{"--output-file", "-"}, args...)...)
}

// random-ids of seed 42: sglang 0.5.23 gives 20 prompts of 609 tokens and 371
// output tokens for 64 and 32 with a tokenizer that adds no special tokens.
func TestBackends(t *testing.T) {
	for name, path := range map[string]string{
		"sglang": "text", "sglang-native": "text", "sglang-oai": "prompt", "sglang-oai-chat": "messages", "vllm": "prompt", "vllm-chat": "messages",
		"openai": "prompt", "openai-chat": "messages", "lmdeploy": "prompt", "lmdeploy-chat": "messages", "minisgl": "messages", "trt": "text_input", "trt-llm": "text_input",
	} {
		mock, url := benchtest.Serve(t, mockserver.Config{PromptTokens: 5})
		code, stdout, stderr := output(t.Context(), "--backend", name, "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "20",
			"--random-input", "64", "--random-output", "32", "--warmup-requests", "0", "--request-rate", "1000")
		if code != program.ExitOK {
			t.Fatalf("%s: exit code %d: %s", name, code, stderr)
		}
		benchtest.WantLines(t, stdout, `^Backend:                                 `+name+` *$`, `^Traffic request rate:                    1000\.0    $`,
			`^Successful requests:                     20        $`, `^Total input tokens:                      609       $`, `^Total generated tokens:                  371       $`)
		for _, body := range mock.Bodies() {
			if !strings.Contains(body, `"`+path+`":`) {
				t.Errorf("%s: no field %q in %s", name, path, body)
			}
		}
	}
}

func TestTokenIDs(t *testing.T) {
	for name, field := range map[string]string{"sglang": "input_ids", "vllm": "prompt"} {
		mock, url := benchtest.Serve(t, mockserver.Config{})
		code, _, stderr := output(t.Context(), "--backend", name, "--base-url", url, "--dataset-name", "random-ids", "--tokenize-prompt", "--num-prompts", "3", "--warmup-requests", "0", "--random-input-len", "8", "--random-output-len", "2", "--random-range-ratio", "1")
		if code != program.ExitOK {
			t.Fatal(stderr)
		}
		for _, body := range mock.Bodies() {
			var got map[string]json.RawMessage
			var ids []int
			if json.Unmarshal([]byte(body), &got) != nil || json.Unmarshal(got[field], &ids) != nil || len(ids) != 8 || ids[1] != ids[0]+1 {
				t.Errorf("%s: %s, want 8 ids in a row", name, body)
			}
		}
	}
}

func TestSameSeedSameLoad(t *testing.T) {
	bodies := map[string]string{}
	for _, seed := range []string{"1", "1", "2"} {
		mock, url := benchtest.Serve(t, mockserver.Config{})
		if code, _, stderr := output(t.Context(), "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "4", "--seed", seed, "--max-concurrency", "1", "--random-output-len", "2"); code != program.ExitOK {
			t.Fatal(stderr)
		}
		got := strings.Join(mock.Bodies(), "\n")
		if before, ok := bodies[seed]; ok && before != got {
			t.Errorf("seed %s gave two loads", seed)
		}
		bodies[seed] = got
	}
	if bodies["1"] == bodies["2"] {
		t.Error("two seeds gave the same load")
	}
}

func TestResultFile(t *testing.T) {
	_, url := benchtest.Serve(t, mockserver.Config{PromptTokens: 9, CachedTokens: 3})
	file := filepath.Join(t.TempDir(), "out.jsonl")
	for range 2 {
		code, stdout, stderr := output(t.Context(), "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "4", "--random-output-len", "3", "--random-range-ratio", "1",
			"--output-file", file, "--output-details", "--tag", "x", "--cache-report", "--goodput", "ttft:60000", "tpot:60000")
		if code != program.ExitOK {
			t.Fatal(stderr)
		}
		benchtest.WantLines(t, stdout, `^SLOs \(ms\): +ttft:60000 tpot:60000`, `^SLO attainment \(%\): +100\.00`, `^Total cached tokens: +12`, `^Cache hit rate: +33\.3%`)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	var got map[string]any
	if err := json.Unmarshal(lines[1], &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"tag": "x", "dataset_name": "random-ids", "request_rate": "inf", "random_input_len": 1024.0, "random_output_len": 3.0, "random_range_ratio": 1.0, "sharegpt_output_len": nil,
		"total_output_tokens": 12.0, "total_output_tokens_retokenized": 12.0, "slo_attainment": 1.0, "accept_length": nil,
		"cache_report":    map[string]any{"total_prompt_tokens": 36.0, "total_cached_tokens": 12.0, "cache_hit_rate_pct": 33.33},
		"goodput_slos_ms": map[string]any{"ttft": 60000.0, "tpot": 60000.0}, "slo_attainment_by_metric": map[string]any{"ttft": 1.0, "tpot": 1.0},
		"server_info": map[string]any{"tokenizer_path": "", "version": "mock", "internal_states": []any{map[string]any{
			"avg_spec_accept_length": nil, "last_gen_throughput": 123.5, "effective_max_running_requests_per_dp": 1048576.0, "memory_usage": map[string]any{"token_capacity": 1e6},
		}}},
		"output_lens": []any{3.0, 3.0, 3.0, 3.0}, "cached_tokens": []any{3.0, 3.0, 3.0, 3.0},
	}
	for key, value := range want {
		if diff := cmp.Diff(value, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

func TestControlCalls(t *testing.T) {
	mock, url := benchtest.Serve(t, mockserver.Config{})
	code, _, stderr := output(t.Context(), "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "2", "--random-output-len", "2",
		"--flush-cache", "--profile", "--profile-activities", "CPU", "MEM", "--header", "X-A=1", "X-B: 2", "--lora-name", "a", "b", "--lora-request-distribution", "distinct")
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	var calls []string
	for _, call := range mock.Calls() {
		if !strings.Contains(call, "tokenize") {
			calls = append(calls, call)
		}
	}
	want := []string{"POST /flush_cache?timeout=60.0", `POST /start_profile {"activities":["CPU","MEM"],"profile_by_stage":false}`, "POST /stop_profile", "GET /server_info"}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	bodies := strings.Join(mock.Bodies(), "\n")
	if !strings.Contains(bodies, `"lora_path":"a"`) || !strings.Contains(bodies, `"lora_path":"b"`) {
		t.Errorf("adapters are missing in\n%s", bodies)
	}
	for _, h := range mock.Headers() {
		if h.Get("X-A") != "1" || h.Get("X-B") != "2" {
			t.Errorf("headers %v", h)
		}
	}
}

// bodiesOf runs the chat backend on an otherwise idle server and returns the
// conversations it sent, as "role: content" a line each.
func bodiesOf(t *testing.T, cfg mockserver.Config, args ...string) (talks []string, stdout string) {
	t.Helper()
	mock, url := benchtest.Serve(t, cfg)
	code, stdout, stderr := output(t.Context(), append([]string{"--backend", "sglang-oai-chat", "--base-url", url, "--warmup-requests", "0"}, args...)...)
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	for _, body := range mock.Bodies() {
		var got struct {
			Messages []struct{ Role, Content string } `json:"messages"`
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		var talk []string
		for _, m := range got.Messages {
			talk = append(talk, m.Role+": "+m.Content)
		}
		talks = append(talks, strings.Join(talk, "\n"))
	}
	return talks, stdout
}

// What a request says of log probabilities, in each API's words; the user's own fields win.
func TestLogprobs(t *testing.T) {
	for name, want := range map[string]string{
		"sglang":     `"logprob_start_len":3,"return_logprob":true,"return_routed_experts":true,`,
		"sglang-oai": `"logprobs":2,`, "sglang-oai-chat": `"logprobs":true,`,
	} {
		mock, url := benchtest.Serve(t, mockserver.Config{})
		code, _, stderr := output(t.Context(), "--backend", name, "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "1", "--random-output-len", "2", "--warmup-requests", "0",
			"--return-logprob", "--top-logprobs-num", "2", "--logprob-start-len", "3", "--token-ids-logprob", "5", "7", "--return-routed-experts", "--extra-request-body", `{"top_logprobs_num":9}`)
		if code != program.ExitOK {
			t.Fatal(stderr)
		}
		body := mock.Bodies()[0]
		if !strings.Contains(body, want) || !strings.Contains(body, `"top_logprobs_num":9`) || name == "sglang" && !strings.Contains(body, `"token_ids_logprob":[5,7]`) {
			t.Errorf("%s: %s, want %s", name, body, want)
		}
	}
}

func TestPrintsAndPlots(t *testing.T) {
	_, url := benchtest.Serve(t, mockserver.Config{FailEvery: 3})
	code, stdout, stderr := output(t.Context(), "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "3", "--random-output-len", "4", "--random-range-ratio", "1", "--warmup-requests", "0", "--print-requests", "--plot-throughput")
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	benchtest.WantLines(t, stderr, `^request \d: sent at \d+\.\d\d ms, TTFT \d+\.\d\d ms, E2E \d+\.\d\d ms, 4 tokens$`, `^request \d: http 500 after .*planned failure`)
	benchtest.WantLines(t, stdout, `^Time \(s\)  Output tokens per second`, `^       0  #{25}       8\.0  #{25} \d$`)
}

// A turn waits for the answer before it, and holds what was answered.
func TestMultiTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talks.json")
	text := `[{"conversations":[{"from":"human","value":"q1"},{"from":"gpt","value":"r1 r1"},{"from":"human","value":"q2"},{"from":"gpt","value":"r2"},{"from":"human","value":"q3"},{"from":"gpt","value":"r3 r3 r3"}]}]`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	talks, stdout := bodiesOf(t, mockserver.Config{PromptTokens: 7}, "--dataset-name", "multi-turn", "--dataset-path", path, "--num-prompts", "1")
	want := []string{"user: q1", "user: q1\nassistant:  t0 t1\nuser: q2", "user: q1\nassistant:  t0 t1\nuser: q2\nassistant:  t0\nuser: q3"}
	if diff := cmp.Diff(want, talks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A16: the prompt tokens of all turns are those that the server counted.
	benchtest.WantLines(t, stdout, `^Successful requests:                     3         $`, `^Total input tokens:                      21        $`, `^Total generated tokens:                  6         $`,
		`Conversations +│ 1 of 3 turns in all`)

	for _, args := range [][]string{
		{"--dataset-name", "multi-turn", "--num-prompts", "5", "--num-turns", "2", "--random-input-len", "4", "--random-output-len", "2"},
		{"--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "1", "--gsp-prompts-per-group", "5", "--gsp-num-turns", "2", "--gsp-system-prompt-len", "6", "--gsp-question-len", "3", "--gsp-output-len", "2"},
	} {
		talks, stdout = bodiesOf(t, mockserver.Config{}, args...)
		second := 0
		for _, talk := range talks {
			if strings.Contains(talk, "assistant:  t0") {
				second++
			}
		}
		if len(talks) != 10 || second != 5 {
			t.Errorf("%s: %d requests, %d of them second turns with an answer; want 10 and 5", args[1], len(talks), second)
		}
		benchtest.WantLines(t, stdout, `Conversations +│ 5 of 10 turns in all`)
	}
}

func TestVLLMTable(t *testing.T) {
	_, url := benchtest.Serve(t, mockserver.Config{FailEvery: 2})
	code, stdout, _ := output(t.Context(), "--backend", "vllm", "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "4", "--random-output-len", "2", "--warmup-requests", "0", "--vllm-table", "--max-error-rate", "0.25")
	if code != program.ExitFailed {
		t.Errorf("exit code %d with half of the requests failed", code)
	}
	benchtest.WantLines(t, stdout, `^Failed requests:                         2         $`, `^---------------Inter-token Latency----------------$`)
}

func TestInterrupt(t *testing.T) {
	mock, url := benchtest.Serve(t, mockserver.Config{StallAfter: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for len(mock.Bodies()) < 1 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	code, stdout, stderr := output(ctx, "--base-url", url, "--dataset-name", "random-ids", "--warmup-requests", "0", "--num-prompts", "50", "--request-rate", "20")
	if code != program.ExitInterrupted {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	benchtest.WantLines(t, stdout, `Partial result`)
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{
		"--backend gserver", "--num-prompts 0", "--request-rate 0", "--request-rate x", "--dataset-name mmmu", "--goodput ttft", "--goodput", "--header x", "--extra-request-body [1]",
		"--random-range-ratio 1.5", "--random-range-ratio nan", "--port 70000", "--seed -1", "--seed 4294967296", "--dataset-name generated-shared-prefix --gsp-num-turns 2", "--dataset-name multi-turn", "--backend vllm-chat --dataset-name random-ids --mooncake-num-rounds 2", "--backend vllm-chat --dataset-name multi-turn --num-turns -1", "--lora-request-distribution often",
		"--backend vllm-chat --tokenize-prompt", "--backend minisgl-ws --disable-stream", "--backend minisgl-ws --gsp-send-routing-key", "--dataset-name openai", "--dataset-name random-ids --use-trace-timestamps", "--gsp-group-distribution zipf",
		"--dataset-name mooncake --mooncake-slowdown-factor 0", "--base-url ftp://x", "--temperature -1", "--top-logprobs-num -1", "--max-error-rate 2", "positional",
	} {
		code, stdout, stderr := output(t.Context(), strings.Fields(args)...)
		if code != program.ExitUsage || stdout != "" || !strings.Contains(stderr, "--help") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want 2 and a message", args, code, stdout, stderr)
		}
	}
}

func TestMissingDataset(t *testing.T) {
	_, url := benchtest.Serve(t, mockserver.Config{})
	code, _, stderr := output(t.Context(), "--base-url", url)
	if code != program.ExitFailed || !strings.Contains(stderr, "--dataset-path") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestDefaultFileName(t *testing.T) {
	c := &command{o: Options{Backend: "sglang", Load: Load{NumPrompts: 20}}}
	d := &c.o.Dataset
	d.name, d.random.InputLen, d.random.OutputLen = "random-ids", 64, 32
	day := time.Now().Format("0102")
	if got, want := c.path(), "sglang_"+day+"_20_64_32.jsonl"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	d.name = "sharegpt"
	if got, want := c.path(), "sglang_"+day+"_20_sharegpt.jsonl"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

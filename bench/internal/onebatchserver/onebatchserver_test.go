package onebatchserver

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// output runs the program against a mock server, on a clock that only moves when
// both wait; without a result file unless args name one.
func output(t *testing.T, cfg mockserver.Config, args string) (mock *mockserver.Server, code int, stdout, stderr string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hosts := benchtest.Hosts{}
		defer hosts.Close()
		mock = hosts.Listen("mock", cfg)
		p := program.Program{Name: Program.Name, Lists: Program.Lists, Command: func() *cobra.Command { return (&config{dial: hosts.Dial}).command() }}
		code, stdout, stderr = benchtest.Output(t.Context(), p, append([]string{"--base-url", "http://mock", "--result-filename", "-"}, strings.Fields(args)...)...)
	})
	return mock, code, stdout, stderr
}

// measure runs one batch on a clock that only moves when client and server wait.
func measure(t *testing.T, cfg mockserver.Config, backend string, size, output int, ignoreEOS bool, check func(*result, error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pipe := mockserver.ServePipe(mockserver.New(cfg))
		defer pipe.Close()
		client := loadgen.NewHTTP(loadgen.HTTPOptions{Dial: pipe.Dial})
		defer client.Close()
		c := &config{base: "http://mock", backend: backend, dataset: "random-ids", interval: 1, seed: 42, vocab: 100}
		check(newBench(c, client, io.Discard).measure(t.Context(), size, 8, output, ignoreEOS))
	})
}

// A18: tokens each 5 ms are 200 tokens per second for each prompt, however few
// there are; the one that came with the prefill does not count.
func TestA18_OutputThroughputHasNoFirstToken(t *testing.T) {
	for _, backend := range []string{"sglang", "vllm"} {
		for _, n := range []int{2, 16} {
			measure(t, mockserver.Config{TTFT: 100 * ms, ITL: 5 * ms}, backend, 4, n, true, func(r *result, err error) {
				if err != nil {
					t.Fatal(err)
				}
				if r.OutputRate == nil || math.Abs(*r.OutputRate-800) > 1e-6 || r.LastTTFT != 0.1 || r.InputRate != 4*8/0.1 || r.OutputTokens != 4*n {
					t.Errorf("%s, %d tokens: %+v", backend, n, r)
				}
			})
		}
	}
}

// Answers that begin 10 ms after each other: 48 tokens come in the 75 ms after the
// last began, 36 of them in the 45 ms before the first ended.
func TestStaggered(t *testing.T) {
	cfg := mockserver.Config{TTFT: 100 * ms, ITL: 5 * ms, BatchSpread: 10 * ms, CachedTokens: 2}
	measure(t, cfg, "sglang", 4, 16, true, func(r *result, err error) {
		if err != nil {
			t.Fatal(err)
		}
		rate, steady, window, hits := 640.0, 800.0, 0.045, 0.25
		want := &result{
			BatchSize: 4, InputLen: 8, OutputLen: 16, Latency: 0.205, InputRate: 32 / 0.13, OutputRate: &rate, OverallRate: 96 / 0.205, LastTTFT: 0.13,
			LastGen: 123.5, AcceptLength: -1, OutputTokens: 64, SteadyRate: &steady, SteadySeconds: &window, CacheHits: &hits,
		}
		if diff := cmp.Diff(want, r, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Chunks of several tokens count as tokens that came evenly since the chunk before.
func TestBetweenChunks(t *testing.T) {
	r := reply{seen: []sighting{{10 * ms, 1}, {20 * ms, 5}, {20 * ms, 6}, {40 * ms, 8}}}
	for at, want := range map[time.Duration]float64{0: 0, 10 * ms: 1, 15 * ms: 3, 20 * ms: 6, 30 * ms: 7, 40 * ms: 8, 99 * ms: 8} {
		if got := r.at(at); got != want {
			t.Errorf("%v: %v tokens, want %v", at, got, want)
		}
	}
}

// One token for each prompt has no output throughput, and ends no run.
func TestOneToken(t *testing.T) {
	measure(t, mockserver.Config{TTFT: 100 * ms}, "sglang", 2, 1, true, func(r *result, err error) {
		if err != nil || r.OutputRate != nil || r.SteadyRate != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		var out bytes.Buffer
		if err := r.print(&out, true); err != nil || strings.Contains(out.String(), "output throughput") {
			t.Errorf("%v, %s", err, out.String())
		}
	})
}

func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  mockserver.Config
		want string
	}{
		"refused": {mockserver.Config{FailEvery: 1}, "planned failure"}, "error": {mockserver.Config{ErrorAfter: 2}, "planned stream error"},
		"cut": {mockserver.Config{CutAfter: 2}, "reading failed"}, "no end": {mockserver.Config{NoDone: true}, "without [DONE]"},
		"early end": {mockserver.Config{EOSAfter: 3}, "prompt 0 stopped after 3 tokens although ignore_eos"},
		"garbage":   {mockserver.Config{GarbageAfter: 2}, "not the JSON"}, "no counts": {mockserver.Config{Usage: mockserver.UsageNever}, "completion_tokens"},
	} {
		measure(t, tt.cfg, "sglang", 2, 8, true, func(_ *result, err error) {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error %v, want one with %q", name, err, tt.want)
			}
		})
	}
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.jsonl")
	args := "--batch-size 4 2 --input-len 64 --output-len 16 --run-name x --show-report --result-filename " + file
	mock, code, stdout, stderr := output(t, mockserver.Config{Slots: 8, TTFT: 5 * ms, ITL: ms}, args)
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	one := func(size string) string {
		return `#Input tokens: \d+
#Output tokens: \d+
batch size: ` + size + `
input_len: 64
output_len: 16
latency: 0\.\d\d s
input throughput: \d+\.\d\d tok/s
output throughput: \d+\.\d\d tok/s
last_ttft: 0\.\d\d s
last generation throughput: 123\.50 tok/s
cache hit rate: 0\.0000
`
	}
	shape := regexp.MustCompile(`^max_running_requests_per_dp=8
num_dp_ranks=1
skip_max_running_requests_threshold=8
skip_token_capacity_threshold=1000000
======== Warmup Begin ========
Warmup with batch_size=\[2, 4\]
` + one("2") + one("4") + `======== Warmup End   ========

` + one("4") + one("2") + `
Results are saved to ` + regexp.QuoteMeta(file) + `

Input lens: \[64\]\. Output lens: \[16\]\.
\|   batch size \|   input len \|   latency \(s\) \|   input throughput \(tok/s\) \|   output throughput \(tok/s\) \| acc length   \|   ITL \(ms\) \|   input cost \(\$/1M\) \|   output cost \(\$/1M\) \|   cache hit rate \|
\|--`)
	if !shape.MatchString(stdout) {
		t.Errorf("output:\n%s", stdout)
	}
	checkFile(t, file)
	var calls []string
	for _, call := range mock.Calls() {
		if !strings.Contains(call, "tokenize") && !strings.Contains(call, "server_info") {
			calls = append(calls, call)
		}
	}
	if diff := cmp.Diff([]string{"POST /flush_cache", "POST /flush_cache", "POST /flush_cache", "POST /flush_cache"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func checkFile(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields(`run_name batch_size input_len output_len latency input_throughput output_throughput overall_throughput last_ttft
		last_gen_throughput acc_length total_output_tokens num_early_stopped steady_state_output_throughput steady_state_window_s cache_hit_rate`) {
		if _, ok := got[key]; !ok {
			t.Errorf("no key %q", key)
		}
	}
	if got["run_name"] != "x" || got["batch_size"] != 4.0 || got["total_output_tokens"] != 64.0 {
		t.Errorf("%v", got)
	}
}

func TestBodies(t *testing.T) {
	prompt := filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(prompt, []byte("t4 t5"), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{
		"--fixed-prompt-file " + prompt:                               {`{"input_ids":[[4,5],[4,5]],"sampling_params":{"ignore_eos":true,"max_new_tokens":2,"temperature":0},"stream":true}`},
		"--fixed-prompt-file " + prompt + " --backend vllm --model m": {`{"ignore_eos":true,"max_tokens":2,"model":"m","prompt":[[4,5],[4,5]],"stream":true,"temperature":0}`},
		"--fixed-prompt-file " + prompt + " --lora-name a b --lora-request-distribution distinct --client-stream-interval 3 --return-logprob --parallel-batch --temperature 0.5": {
			`{"input_ids":[[4,5],[4,5]],"lora_path":["a","b"],"parallel_batch":true,"return_logprob":true,"sampling_params":{"ignore_eos":true,"max_new_tokens":2,"stream_interval":3,"temperature":0.5},"stream":true}`,
		},
		"--fixed-prompt-file " + prompt + " --cache-hit-rate 0.5": {
			`{"input_ids":[[4],[4]],"sampling_params":{"ignore_eos":true,"max_new_tokens":1,"temperature":0},"stream":false}`,
			`{"input_ids":[[4,5],[4,5]],"sampling_params":{"ignore_eos":true,"max_new_tokens":2,"temperature":0},"stream":true}`,
		},
	} {
		mock, code, _, stderr := output(t, mockserver.Config{}, "--skip-warmup --batch-size 2 --output-len 2 "+args)
		if code != program.ExitOK {
			t.Fatalf("%s: %s", args, stderr)
		}
		if diff := cmp.Diff(want, mock.Bodies()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}

// The lengths of the prompts that are sent, by dataset.
func TestPrompts(t *testing.T) {
	custom := filepath.Join(t.TempDir(), "custom.jsonl")
	if err := os.WriteFile(custom, []byte(`{"conversations":[{"content":"a b c"},{"value":"c d"}]}`+"\n"+`{"conversations":[{"content":"a b c"},{"value":"c d"}]}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]int{
		"--batch-size 3 --input-len 7":        {7, 7, 7},
		"--batch-size 3 --input-len-list 5,9": {5, 9, 5},
		"--batch-size 3 --dataset-name generated-shared-prefix --gsp-system-prompt-len 6 --gsp-question-len 4 --gsp-output-len 2 --gsp-num-groups 2": {10, 10, 10},
		"--batch-size 2 --dataset-name custom --dataset-path " + custom:                                                                              {3, 3},
		"--batch-size 2 --input-len 5 --dataset-name random --dataset-path ../dataset/testdata/sharegpt.json":                                        {5, 5},
	} {
		mock, code, _, stderr := output(t, mockserver.Config{}, "--skip-warmup --output-len 2 "+args)
		if code != program.ExitOK || len(mock.Bodies()) != 1 {
			t.Fatalf("%s: %d requests, %s", args, len(mock.Bodies()), stderr)
		}
		var body struct {
			IDs [][]int `json:"input_ids"`
		}
		if err := json.Unmarshal([]byte(mock.Bodies()[0]), &body); err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, ids := range body.IDs {
			got = append(got, len(ids))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	_, code, _, stderr := output(t, mockserver.Config{}, "--batch-size 3 --dataset-name custom --dataset-path "+custom)
	if code != program.ExitFailed || !strings.Contains(stderr, "only 2 usable prompts for a batch of 3") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// Prompt 0 stops after 3 tokens, prompt 1 after 4.
func TestEarlyStops(t *testing.T) {
	_, code, stdout, stderr := output(t, mockserver.Config{TTFT: ms, ITL: 5 * ms, EOSAfter: 3}, "--skip-warmup --batch-size 2 --output-len 4 --disable-ignore-eos --show-report")
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	for _, want := range []string{"total output tokens: 7 (requested 8)\n", "early-stopped requests: 1/2\n", "tok/s over a 0.01 s full-batch window\n", "| early stops   |\n", "| 1/2           |\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
}

func TestLimits(t *testing.T) {
	cfg := mockserver.Config{Slots: 4, TokenCapacity: 100}
	_, code, stdout, stderr := output(t, cfg, "--skip-warmup --batch-size 1 5 --input-len 8 200 --output-len 2")
	if code != program.ExitOK || strings.Count(stdout, "due to max running requests limit") != 2 || strings.Count(stdout, "resident_tokens=202 > skip_token_capacity_threshold=100") != 1 || strings.Count(stdout, "batch size: ") != 1 {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	if _, code, stdout, _ = output(t, cfg, "--skip-warmup --batch-size 5 --input-len 200 --output-len 2 --enable-multi-batch --skip-token-capacity-check"); code != program.ExitOK || strings.Contains(stdout, "Skip") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
	if _, code, _, stderr = output(t, cfg, "--batch-size 5"); code != program.ExitFailed || !strings.Contains(stderr, "every batch is larger") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{
		"--batch-size 0", "--batch-size", "--input-len -1", "--output-len x", "--batch-size 60000 --input-len 100000", "--temperature -1", "--temperature nan",
		"--cache-hit-rate 2", "--backend tgi", "--dataset-name mmmu", "--dataset-name x", "--input-len-list 5,x", "--input-len-list 5 --dataset-name custom",
		"--input-len 1 2 --input-len-list 5", "--backend vllm --disable-ignore-eos", "--disable-ignore-eos --client-stream-interval 2", "--apply-chat-template",
		"--dataset-name sharegpt --fixed-prompt-file x", "--base-url ftp://x", "--lora-request-distribution often", "--hourly-cost -1", "positional",
	} {
		if _, code, stdout, stderr := output(t, mockserver.Config{}, args); code != program.ExitUsage || stdout != "" || !strings.Contains(stderr, "--help") {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

// As Python's tabulate 0.10 prints it with tablefmt="github".
func TestGithubTable(t *testing.T) {
	header := []string{"batch size", "latency (s)", "input throughput (tok/s)", "acc length", "ITL (ms)"}
	got := githubTable(header, [][]string{{"4", "0.13", "4726.33", "n/a", "4.71"}, {"16", "12.50", "123456.79", "n/a", "n/a"}})
	want := `|   batch size |   latency (s) |   input throughput (tok/s) | acc length   | ITL (ms)   |
|--------------|---------------|----------------------------|--------------|------------|
|            4 |          0.13 |                    4726.33 | n/a          | 4.71       |
|           16 |         12.5  |                  123457    | n/a          | n/a        |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

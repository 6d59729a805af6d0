package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	mock, url := benchtest.Serve(t, mockserver.Config{Model: "the-model", PromptTokens: 40, RoleChunk: true})
	file := filepath.Join(t.TempDir(), "out.jsonl")
	for range 2 { // the file is appended to
		code, stdout, stderr := benchtest.Output(t.Context(), Program, "--rate", "400", "--num-requests=12", "--max-tokens=9", "--url="+url+"/v1", "--output-file", file)
		if code != program.ExitOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		benchtest.WantLines(t, stdout,
			`^Backend:                                 sglang-oai-chat$`,
			`^Traffic request rate:                    400\.0     $`,
			`^Successful requests:                     12        $`,
			`^Total input tokens:                      480       $`,
			`^Total generated tokens:                  108       $`,
			`Requests sent / failed +│ 12 / 0 `)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	if len(lines) != 2 || !json.Valid(lines[0]) || !json.Valid(lines[1]) {
		t.Errorf("want two lines of JSON:\n%s", data)
	}
	bodies := mock.Bodies()
	if len(bodies) != 26 {
		t.Fatalf("%d requests, want 2 runs of 1 + 12", len(bodies))
	}
	seen := map[string]bool{}
	for _, body := range bodies[:13] {
		if seen[body] || !strings.Contains(body, `"model":"the-model"`) {
			t.Errorf("request is a repeat or has the wrong model: %s", body)
		}
		seen[body] = true
	}
	if bodies[0] != bodies[13] {
		t.Error("the same seed gave another warm-up prompt")
	}
}

func TestOutputDetails(t *testing.T) {
	_, url := benchtest.Serve(t, mockserver.Config{FailEvery: 2})
	file := filepath.Join(t.TempDir(), "out.jsonl")
	code, _, stderr := benchtest.Output(t.Context(), Program, "--url", url, "--num-requests", "4", "--max-tokens", "3", "--warmup-requests", "0", "--output-file", file, "--output-details")
	if code != program.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rate   any       `json:"request_rate"`
		Lens   []int     `json:"output_lens"`
		Errors []string  `json:"errors"`
		ITLs   [][]any   `json:"itls"`
		Starts []float64 `json:"start_times"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Rate != "inf" || len(got.Lens) != 4 || len(got.Errors) != 4 || len(got.ITLs) != 4 || len(got.Starts) != 4 {
		t.Errorf("details: %+v", got)
	}
}

func TestSomeAndAllFailed(t *testing.T) {
	_, some := benchtest.Serve(t, mockserver.Config{FailEvery: 3})
	code, stdout, _ := benchtest.Output(t.Context(), Program, "--url", some, "--num-requests", "9", "--max-tokens", "2", "--warmup-requests", "0")
	if code != program.ExitOK {
		t.Errorf("exit code %d when some succeeded", code)
	}
	benchtest.WantLines(t, stdout, `^Successful requests:                     6         $`, `9 / 3`, `Failed: http 500 +│ 3, first: 500 Internal Server`)

	_, all := benchtest.Serve(t, mockserver.Config{FailEvery: 1})
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--url", all, "--num-requests", "5", "--max-tokens", "2")
	if code != program.ExitFailed {
		t.Errorf("exit code %d when all failed", code)
	}
	benchtest.WantLines(t, stdout, `^Successful requests:                     0         $`, `^P99 TTFT \(ms\): +n/a +$`, `5 / 5`)
	benchtest.WantLines(t, stderr, `Warm-up: 1 request\(s\) failed: http 500`, `no request succeeded`)
}

func TestNoServer(t *testing.T) {
	_, url := benchtest.Serve(t, mockserver.Config{})
	gone := httptest.NewServer(nil)
	gone.Close()
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--url", gone.URL, "--ready-timeout", "1s")
	if code != program.ExitFailed || stdout != "" {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
	benchtest.WantLines(t, stderr, `Waiting up to 1s for the server`, `did not get ready within 1s`)
	code, stdout, _ = benchtest.Output(t.Context(), Program, "--url", gone.URL, "--ready-timeout", "0", "--model", "m", "--num-requests", "3")
	if code != program.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	benchtest.WantLines(t, stdout, `Failed: connect +│ 3, first:`)
	if code, _, _ = benchtest.Output(t.Context(), Program, "--url", url, "--ready-timeout", "0", "--num-requests", "1", "--max-tokens", "1"); code != program.ExitOK {
		t.Errorf("exit code %d when the model is asked for without waiting", code)
	}
}

func TestInterrupt(t *testing.T) {
	mock, url := benchtest.Serve(t, mockserver.Config{StallAfter: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for len(mock.Bodies()) < 2 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	code, stdout, stderr := benchtest.Output(ctx, Program, "--url", url, "--warmup-requests", "0", "--num-requests", "50", "--rate", "20")
	if code != program.ExitInterrupted {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	benchtest.WantLines(t, stdout, `Partial result +│ interrupted: \d+ of 50 requests`, `Failed: cancelled`)
}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args string
		want string
	}{
		{"--rate 0", "--rate"},
		{"--rate=-1", "--rate"},
		{"--rate nan", "--rate"},
		{"--rate fast", "--rate"},
		{"--rate 1e-300", "--rate"},
		{"--num-requests 0", "--num-requests"},
		{"--num-requests=-5", "--num-requests"},
		{"--num-requests x", "--num-requests"},
		{"--max-tokens 0", "--max-tokens"},
		{"--max-concurrency=-1", "--max-concurrency"},
		{"--input-words 0", "--input-words"},
		{"--warmup-requests=-1", "--warmup-requests"},
		{"--timeout=-1s", "--timeout"},
		{"--seed=-1", "--seed"},
		{"--url ftp://x", "--url"},
		{"--output-details", "--output-file"},
		{"--output-file /nonexistent/dir/x", "--output-file"},
		{"--nonsense", "--nonsense"},
		{"8", `"8"`},
	}
	for _, tt := range tests {
		code, stdout, stderr := benchtest.Output(t.Context(), Program, strings.Fields(tt.args)...)
		if code != program.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || !strings.Contains(stderr, "--help") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want 2 and a message with %s", tt.args, code, stdout, stderr, tt.want)
		}
	}
}

func TestHelp(t *testing.T) {
	code, stdout, _ := benchtest.Output(t.Context(), Program, "--help")
	if code != program.ExitOK {
		t.Errorf("exit code %d", code)
	}
	benchtest.WantLines(t, stdout, `go run ./bench/client --rate 8$`, `--rate rate +requests per second; inf sends all at once \(default inf\)`, `--num-requests int .*\(default 64\)`)
}

func TestRates(t *testing.T) {
	mock, url := benchtest.Serve(t, mockserver.Config{})
	plot := filepath.Join(t.TempDir(), "curve.svg")
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--url", url, "--rates", "100,200", "--num-requests", "4", "--max-tokens", "2", "--plot", plot)
	if code != program.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	benchtest.WantLines(t, stdout, `^Traffic request rate:                    100\.0     $`, `^Traffic request rate:                    200\.0     $`, `request rate \(req/s\)`, `(knee is|No knee)`)
	data, err := os.ReadFile(plot)
	if err != nil || !bytes.Contains(data, []byte("<svg")) {
		t.Errorf("plot: %v", err)
	}
	seen := map[string]bool{}
	for _, body := range mock.Bodies() {
		if seen[body] {
			t.Errorf("two rates sent %s", body)
		}
		seen[body] = true
	}
	for _, args := range []string{"--rates 1,x", "--rates 1,inf", "--plot x.svg", "--rates 1 --plot x.gif"} {
		if code, _, _ := benchtest.Output(t.Context(), Program, strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func output(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = program.Run(ctx, Program, args, &out, &err)
	return code, out.String(), err.String()
}

// results writes a file of n runs whose latencies are factor times those of a
// server with 2% noise between runs.
func results(t *testing.T, rng *rand.Rand, n int, factor float64, change func(map[string]any)) string {
	t.Helper()
	var text bytes.Buffer
	for range n {
		noisy := func(v float64) float64 { return v * factor * (1 + 0.02*rng.NormFloat64()) }
		line := map[string]any{
			"backend": "sglang", "dataset_name": "sharegpt", "request_rate": 4.0, "completed": 200, "sent": 200, "total_output_tokens": 40000,
			"mean_ttft_ms": noisy(50), "p99_ttft_ms": noisy(90), "mean_tpot_ms": noisy(5), "p99_itl_ms": noisy(9), "mean_e2e_latency_ms": noisy(700),
			"output_throughput": 1e6 / noisy(1000),
		}
		if change != nil {
			change(line)
		}
		data, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(data, '\n'))
	}
	path := filepath.Join(t.TempDir(), "results.jsonl")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPlantedSlowdown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	a, b := results(t, rng, 5, 1, nil), results(t, rng, 5, 1.1, nil)
	report := filepath.Join(t.TempDir(), "report.md")
	code, stdout, stderr := output(t.Context(), "--a", a, "--b", b, "--b-name", "new", "--markdown", report)
	if code != program.ExitRegression || !strings.Contains(stderr, "new is worse than A") || !strings.Contains(stdout, "new against A: TTFT mean is worse by") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## A vs new benchmark", "### Hardware and configuration", "### Key figures (median of 5 and 5 runs)", "| TTFT mean (ms) |", "### Reading", "### Risks\n- None of the known traps applies."} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is missing in\n%s", want, data)
		}
	}
	if code, stdout, _ := output(t.Context(), "--a", b, "--b", a); code != program.ExitOK || !strings.Contains(stdout, "better") {
		t.Errorf("the other way round: exit code %d\n%s", code, stdout)
	}
}

// Of ten comparisons of a server with itself, at most one may raise an alarm.
func TestNothingPlanted(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	alarms := 0
	for range 10 {
		code, stdout, stderr := output(t.Context(), "--a", results(t, rng, 5, 1, nil), "--b", results(t, rng, 5, 1, nil))
		if code != program.ExitOK {
			alarms++
			t.Logf("%s%s", stderr, stdout)
		}
	}
	if alarms > 1 {
		t.Errorf("%d alarms in 10", alarms)
	}
}

func TestWarnings(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	a := results(t, rng, 1, 1, func(m map[string]any) {
		m["dataset_name"], m["completed"], m["failed"], m["p99_ttft_ms"], m["total_output_tokens"] = "random", 20, 2, 400, 400
		m["server_prompt_tokens"], m["cached_tokens"] = 100, []int{10}
	})
	b := results(t, rng, 1, 1, func(m map[string]any) {
		m["request_rate"], m["max_client_lag_ms"], m["server_prompt_tokens"], m["cached_tokens"] = 8, 12.5, 100, []int{60}
	})
	code, stdout, _ := output(t.Context(), "--a", a, "--b", b)
	if code != program.ExitOK {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"Undecided: 1 run(s) of a side are too few", "Only 1 and 1 runs", "fewer than 100 requests", "fewer than 100 tokens", "about prefix caches",
		"more than 4 times the mean", "Requests failed", "up to 12.5 ms late", "not comparable", "10.0% for A, 60.0% for B",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no warning %q in\n%s", want, stdout)
		}
	}
}

// Two servers in turn; the second takes three times as long.
func TestServers(t *testing.T) {
	var urls []string
	var mocks []*mockserver.Server
	for _, ttft := range []time.Duration{10 * time.Millisecond, 30 * time.Millisecond} {
		mock := mockserver.New(mockserver.Config{TTFT: ttft})
		server := httptest.NewServer(mock)
		defer server.Close()
		mocks, urls = append(mocks, mock), append(urls, server.URL)
	}
	code, stdout, stderr := output(t.Context(), "--a-url", urls[0], "--b-url", urls[1], "--dataset-name", "random-ids", "--num-prompts", "4", "--random-output-len", "2", "--max-concurrency", "1", "--warmup-requests", "0")
	if code != program.ExitRegression || !strings.Contains(stdout, "TTFT mean is worse") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	first, second := mocks[0].Bodies(), mocks[1].Bodies()
	if len(first) != 20 || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("the servers got %d and %d requests; want the same 20", len(first), len(second))
	}
}

func TestUsageErrors(t *testing.T) {
	good := results(t, rand.New(rand.NewPCG(4, 4)), 1, 1, nil)
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("{\"a\":1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"", "--a " + good, "--a " + good + " --b /nonexistent", "--a " + good + " --b " + bad, "--a x --b y --a-url u --b-url v", "--a-url u --b-url ftp://v",
		"--a x --b y --repeats 0", "--a x --b y --alpha 0", "--a x --b y --threshold 1",
	} {
		if code, _, stderr := output(t.Context(), strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// sglang's own client writes Infinity, which is not JSON.
func TestInfinity(t *testing.T) {
	r, err := parseRun([]byte(`{"request_rate": Infinity, "mean_ttft_ms": 3.5}`))
	if err != nil || r.Rate != "inf" || r.MeanTTFT != 3.5 {
		t.Errorf("%+v, %v", r, err)
	}
}

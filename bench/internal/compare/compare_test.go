package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/serving"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--a", a, "--b", b, "--b-name", "new", "--markdown", report)
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
	if code, stdout, _ := benchtest.Output(t.Context(), Program, "--a", b, "--b", a); code != program.ExitOK || !strings.Contains(stdout, "better") {
		t.Errorf("the other way round: exit code %d\n%s", code, stdout)
	}
}

// Of ten comparisons of a server with itself, at most one may raise an alarm.
func TestNothingPlanted(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	alarms := 0
	for range 10 {
		code, stdout, stderr := benchtest.Output(t.Context(), Program, "--a", results(t, rng, 5, 1, nil), "--b", results(t, rng, 5, 1, nil))
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
	code, stdout, _ := benchtest.Output(t.Context(), Program, "--a", a, "--b", b)
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

// servers compares two mock servers, on a clock that only moves when all wait.
func servers(t *testing.T, a, b mockserver.Config, args ...string) (code int, stdout, stderr string, bodies [2][]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hosts := benchtest.Hosts{}
		defer hosts.Close()
		mocks := [2]*mockserver.Server{hosts.Listen("a", a), hosts.Listen("b", b)}
		p := program.Program{Name: Program.Name, Lists: Program.Lists, Command: func() *cobra.Command {
			return (&config{o: &serving.Options{Dial: hosts.Dial}}).command()
		}}
		fixed := []string{"--a-url", "http://a", "--b-url", "http://b", "--dataset-name", "random-ids", "--random-range-ratio", "1", "--random-input-len", "4", "--warmup-requests", "0", "--disable-retokenize"}
		code, stdout, stderr = benchtest.Output(t.Context(), p, append(fixed, args...)...)
		bodies = [2][]string{mocks[0].Bodies(), mocks[1].Bodies()}
	})
	return code, stdout, stderr, bodies
}

// Both servers get the same load; the second takes three times as long.
func TestServers(t *testing.T) {
	a, b := mockserver.Config{TTFT: 10 * time.Millisecond}, mockserver.Config{TTFT: 30 * time.Millisecond}
	code, stdout, stderr, bodies := servers(t, a, b, "--num-prompts", "4", "--random-output-len", "2", "--max-concurrency", "1")
	if code != program.ExitRegression || !strings.Contains(stdout, "TTFT mean is worse by 200.0%") || strings.Contains(stdout, "NaN") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	if len(bodies[0]) != 20 || fmt.Sprint(bodies[0]) != fmt.Sprint(bodies[1]) {
		t.Errorf("the servers got %d and %d requests; want the same 20", len(bodies[0]), len(bodies[1]))
	}
}

// jittery is a server whose answers take longer or shorter by a tenth, at random.
func jittery(seed uint64, slower float64) mockserver.Config {
	scaled := func(d time.Duration) time.Duration { return time.Duration(slower * float64(d)) }
	return mockserver.Config{TTFT: scaled(20 * time.Millisecond), ITL: scaled(5 * time.Millisecond), Jitter: 0.1, Seed: seed}
}

var fiveRepeats = []string{"--num-prompts", "40", "--random-output-len", "4", "--request-rate", "20", "--repeats", "5"}

// A server that is a tenth slower is found with five repeats, interleaved.
func TestServersPlantedSlowdown(t *testing.T) {
	code, stdout, stderr, _ := servers(t, jittery(1, 1), jittery(2, 1.1), fiveRepeats...)
	if code != program.ExitRegression || !strings.Contains(stdout, "TTFT mean is worse by") || !strings.Contains(stdout, "E2E mean is worse by") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	if code, stdout, _, _ = servers(t, jittery(1, 1.1), jittery(2, 1), fiveRepeats...); code != program.ExitOK || !strings.Contains(stdout, "TTFT mean is better by") {
		t.Errorf("the other way round: exit code %d\n%s", code, stdout)
	}
}

// Of ten comparisons of a server with itself, at most one may raise an alarm.
func TestServersNothingPlanted(t *testing.T) {
	alarms := 0
	for i := range uint64(10) {
		if code, stdout, _, _ := servers(t, jittery(2*i+3, 1), jittery(2*i+4, 1), fiveRepeats...); code != program.ExitOK {
			alarms++
			t.Logf("exit code %d\n%s", code, stdout)
		}
	}
	if alarms > 1 {
		t.Errorf("%d alarms in 10", alarms)
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
		if code, _, stderr := benchtest.Output(t.Context(), Program, strings.Fields(args)...); code != program.ExitUsage {
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

package sweep

import (
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/serving"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func output(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	return benchtest.Output(ctx, Program, append([]string{"--dataset-name", "random-ids", "--random-input-len", "4", "--random-output-len", "2", "--warmup-requests", "0"}, args...)...)
}

// A server of 2 slots and 100 ms a request takes 20 requests per second.
func TestKneeOfAKnownServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	var code int
	var stdout, stderr string
	synctest.Test(t, func(t *testing.T) {
		hosts := benchtest.Hosts{}
		defer hosts.Close()
		hosts.Listen("mock", mockserver.Config{Slots: 2, TTFT: 99 * time.Millisecond, ITL: time.Millisecond})
		p := program.Program{Name: "sweep", Command: func() *cobra.Command { return (&config{o: &serving.Options{Dial: hosts.Dial}}).command() }}
		args := "--base-url http://mock --rates 8,200 --num-prompts 64 --dataset-name random-ids --random-input-len 4 --random-output-len 2 --warmup-requests 0 --output-dir "
		code, stdout, stderr = benchtest.Output(t.Context(), p, strings.Fields(args+dir)...)
	})
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	if !strings.Contains(stdout, "The knee is between 8 and 200") || !strings.Contains(stdout, "with headroom (x0.8):") {
		t.Errorf("no knee in\n%s", stdout)
	}
	benchtest.WantLines(t, stdout, `^By the server's own metric, requests wait in its queue from 200 on: [0-9]+\.[0-9] on average; 0\.[0-9] at 8\.$`)
	file, err := os.Open(filepath.Join(dir, "sweep.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][0] != "8" || rows[2][0] != "200" || rows[2][3] != "64" {
		t.Errorf("rows %v, %v", rows, err)
	}
	for name, want := range map[string]string{"sweep.md": "| 200 | 64 / 0 |", "sweep.html": "requests wait in its queue from 200 on", "sweep.svg": "<svg"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, no %q", name, err, want)
		}
	}
}

// The queue of a load is that of its run with the longest.
func TestQueueing(t *testing.T) {
	run := func(load, queue float64, samples int) outcome {
		o := outcome{step: step{Load: load}}
		o.Server.Samples, o.Server.MeanQueue = samples, queue
		return o
	}
	for want, outcomes := range map[string][]outcome{
		"": {run(1, 5, 0)},
		"By the server's own metric, no requests wait in its queue up to 2: 0.9 on average.":          {run(1, 0, 3), run(2, 0.9, 3)},
		"By the server's own metric, requests wait in its queue from 1 on: 1.0 on average.":           {run(2, 4, 3), run(1, 1, 3)},
		"By the server's own metric, requests wait in its queue from 2 on: 3.0 on average; 0.2 at 1.": {run(1, 0.2, 3), run(2, 0, 3), run(2, 3, 3), run(4, 9, 3)},
	} {
		if got := queueing(outcomes); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestResume(t *testing.T) {
	mock, url := benchtest.Serve(t, mockserver.Config{})
	dir := filepath.Join(t.TempDir(), "out")
	args := []string{"--base-url", url, "--num-prompts", "3", "--output-dir", dir}
	if code, _, stderr := output(t.Context(), append(args, "--concurrencies", "1,2")...); code != program.ExitOK {
		t.Fatal(stderr)
	}
	if code, _, stderr := output(t.Context(), append(args, "--concurrencies", "1,2")...); code != program.ExitUsage || !strings.Contains(stderr, "--resume") {
		t.Errorf("a second call: exit code %d, %s", code, stderr)
	}
	before := len(mock.Bodies())
	code, stdout, stderr := output(t.Context(), append(args, "--concurrencies", "1,2,3", "--resume")...)
	if code != program.ExitOK || len(mock.Bodies())-before != 3 {
		t.Errorf("exit code %d, %d requests; want only the 3 that were missing: %s", code, len(mock.Bodies())-before, stderr)
	}
	if !strings.Contains(stdout, "No knee up to 3") {
		t.Errorf("no verdict over all runs in\n%s", stdout)
	}
	if code, _, _ := output(t.Context(), append(args, "--concurrencies", "1,2", "--resume", "--temperature", "1")...); code != program.ExitFailed {
		t.Errorf("other settings: exit code %d", code)
	}
	seen := map[string]bool{}
	for _, body := range mock.Bodies() {
		if seen[body] {
			t.Errorf("two steps sent %s", body)
		}
		seen[body] = true
	}
}

func TestDryRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	code, stdout, _ := output(t.Context(), "--rates", "4,2", "--seconds", "10", "--repeats", "2", "--dry-run", "--output-dir", dir)
	want := `Run 1: request rate (req/s) 2, repeat 1, 20 requests
Run 2: request rate (req/s) 2, repeat 2, 20 requests
Run 3: request rate (req/s) 4, repeat 1, 40 requests
Run 4: request rate (req/s) 4, repeat 2, 40 requests
`
	if code != program.ExitOK || stdout != want {
		t.Errorf("exit code %d, %s", code, stdout)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a dry run wrote something")
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{"", "--rates 1 --concurrencies 1", "--concurrencies 0", "--rates 1 --repeats 0", "--rates 1 --seconds -1", "--rates 1e9 --seconds 1e6", "--rates 0"} {
		if code, _, stderr := output(t.Context(), strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

package offline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tiny = "../../../go/internal/model/testdata/tiny/llama-tied"

// The lengths of random-ids of seed 42 are known: 609 and 371 tokens for 20
// prompts of up to 64 and answers of up to 32.
func TestOffline(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.jsonl")
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--model", tiny, "--num-pages", "2048", "--num-prompts", "20", "--random-input", "64", "--random-output", "32", "--memory-bandwidth", "2", "--result-filename", file)
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	if !strings.HasPrefix(stdout, "\n====== Offline Throughput Benchmark Result =======\nBackend:                                 engine    \nSuccessful requests:                     20        \n") {
		t.Errorf("table:\n%s", stdout)
	}
	for _, want := range []string{"GB/s over the whole run, ", "% of 2 GB/s.", "Total input tokens:                      609       \n", "Total generated tokens:                  371       \n", "Total token throughput (tok/s):"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields("backend successful_requests total_latency total_input_tokens total_output_tokens request_throughput input_throughput output_throughput total_throughput last_gen_throughput") {
		if _, ok := got[key]; !ok {
			t.Errorf("no key %q", key)
		}
	}
	if got["total_output_tokens"] != 371.0 {
		t.Errorf("%v", got)
	}
}

// Each token but the first reads the positions before it.
func TestPositions(t *testing.T) {
	for _, c := range []struct {
		prompt, output int
		want           float64
	}{{10, 0, 0}, {10, 1, 0}, {10, 2, 11}, {10, 4, 11 + 12 + 13}} {
		if got := positions(c.prompt, c.output); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{"--num-prompts 0", "--dataset-name mmmu", "--random-range-ratio 2", "--memory-bandwidth -1", "--random-output-len 0", "x"} {
		if code, _, stderr := benchtest.Output(t.Context(), Program, strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
	if code, _, stderr := benchtest.Output(t.Context(), Program, "--model", "/nonexistent"); code != program.ExitFailed || stderr == "" {
		t.Errorf("no model: exit code %d, %s", code, stderr)
	}
}

func TestPace(t *testing.T) {
	var p pace
	for _, v := range []struct {
		ms, tokens int
	}{{500, 100}, {1000, 200}, {1500, 230}, {2000, 250}} {
		p.add(time.Duration(v.ms)*time.Millisecond, v.tokens)
	}
	if got := p.last(); got != 50 { // 50 tokens in the second from 1.0 s to 2.0 s
		t.Errorf("%v, want 50", got)
	}
	short := pace{}
	short.add(500*time.Millisecond, 100)
	if got := short.last(); got != 200 {
		t.Errorf("%v, want 200", got)
	}
}

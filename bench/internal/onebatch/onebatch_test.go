package onebatch

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tiny = "../../../go/internal/model/testdata/tiny/llama-tied"

func output(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = program.Run(t.Context(), Program, args, &out, &err)
	return code, out.String(), err.String()
}

func TestOneBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.jsonl")
	code, stdout, stderr := output(t, "--model", tiny, "--num-pages", "512", "--batch-size", "1", "4", "--input-len", "8", "--output-len", "1", "9", "--result-filename", file)
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	seconds, rate := `\d+\.\d{5} s`, ` *\d+\.\d\d token/s`
	shape := regexp.MustCompile(`^max_total_num_tokens=512
Warmup \.\.\.
Prefill\. latency: ` + seconds + `, throughput: ` + rate + `
Total\. latency:  *\d+\.\d{3} s, throughput: ` + rate + `
Benchmark \.\.\.
`)
	if !shape.MatchString(stdout) {
		t.Errorf("output:\n%s", stdout)
	}
	if n := strings.Count(stdout, "Decode 4. Batch size: 4, latency: "); n != 1 || strings.Contains(stdout, "Decode 5.") {
		t.Errorf("want the first five steps of the only batch of 4 that has them:\n%s", stdout)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var shapes [][3]int
	for line := range strings.Lines(string(data)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		shapes = append(shapes, [3]int{r.BatchSize, r.InputLen, r.OutputLen})
		if (r.MedianDecode != nil) != (r.OutputLen > 1) || r.Prefill <= 0 || r.Total < r.Prefill {
			t.Errorf("%s", line)
		}
	}
	if diff := cmp.Diff([][3]int{{1, 8, 1}, {1, 8, 9}, {4, 8, 1}, {4, 8, 9}}, shapes); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestNewResult(t *testing.T) {
	got := newResult("r", 2, 10, 4, 0.5, []float64{0.125, 0.25, 0.125})
	median, rate := 0.125, 16.0
	want := &result{RunName: "r", BatchSize: 2, InputLen: 10, OutputLen: 4, Prefill: 0.5, PrefillRate: 40, MedianDecode: &median, MedianDecodeRate: &rate, Total: 1, TotalRate: 28}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The layout is sglang's: '{:6.5f} s', '{:9.2f} token/s', total '{:6.3f} s'.
func TestLayout(t *testing.T) {
	var out bytes.Buffer
	steps := []float64{0.00512, 0.0051}
	c := &config{}
	r := newResult("", 1, 1024, 3, 0.12345, steps)
	if err := c.print(&out, r, steps); err != nil {
		t.Fatal(err)
	}
	want := `Prefill. latency: 0.12345 s, throughput:   8294.86 token/s
Decode 0. Batch size: 1, latency: 0.00512 s, throughput:    195.31 token/s
Decode 1. Batch size: 1, latency: 0.00510 s, throughput:    196.08 token/s
Decode.  median latency: 0.00511 s, median throughput:    195.69 token/s
Total. latency:  0.134 s, throughput:   7683.10 token/s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{"--batch-size 0", "--input-len", "--output-len -3", "--log-decode-step -1", "--batch-size 1 x"} {
		if code, _, stderr := output(t, strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
	code, _, stderr := output(t, "--model", tiny, "--num-pages", "64", "--batch-size", "8", "--input-len", "16")
	if code != program.ExitUsage || !strings.Contains(stderr, "do not fit") {
		t.Errorf("too large: exit code %d, %s", code, stderr)
	}
}

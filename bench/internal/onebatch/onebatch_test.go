package onebatch

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/go/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tiny = "../../../go/internal/model/testdata/tiny/llama-tied"

func TestOneBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.jsonl")
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--model", tiny, "--num-pages", "512", "--batch-size", "1", "4", "--input-len", "8", "--output-len", "1", "9", "--result-filename", file)
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
		checkParts(t, r.PrefillParts, r.Prefill)
		if steps := r.OutputLen - 1; steps > 0 {
			checkParts(t, r.DecodeParts, (r.Total-r.Prefill)/float64(steps))
		} else if r.DecodeParts != nil {
			t.Errorf("parts of no step: %v", r.DecodeParts)
		}
	}
	if diff := cmp.Diff([][3]int{{1, 8, 1}, {1, 8, 9}, {4, 8, 1}, {4, 8, 9}}, shapes); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// checkParts wants the parts of a forward pass to be all of its time.
func checkParts(t *testing.T, p parts, seconds float64) {
	t.Helper()
	for _, name := range append(slices.Clone(partNames), between) {
		if p[name] <= 0 {
			t.Errorf("part %q took %v s in %v", name, p[name], p)
		}
	}
	if math.Abs(p.total()-seconds) > 1e-9 || len(p) != len(partNames)+1 {
		t.Errorf("%v add up to %v s, want %v", p, p.total(), seconds)
	}
}

func TestParts(t *testing.T) {
	second := func(part string, n time.Duration) llm.OpTime { return llm.OpTime{Part: part, Time: n * time.Second} }
	var p passes
	timed := func(prefill bool, seconds float64, ops ...llm.OpTime) {
		p.add(prefill, seconds, nil)
		of := &p.decodeParts
		if prefill {
			of = &p.prefillParts
		}
		if *of == nil {
			*of = parts{}
		}
		of.add(ops, seconds)
	}
	timed(true, 10, second("mlp", 4), second("attention", 1), second("attention", 2), second("exchange between ranks", 1))
	timed(false, 5, second("mlp", 2), second("head", 2))
	timed(false, 3, second("mlp", 2))
	r := newResult("", 1, 8, 3, &p)
	want := parts{"mlp": 2, "head": 1, between: 1}
	if diff := cmp.Diff(want, r.DecodeParts); diff != "" {
		t.Errorf("mean of two steps (-want +got):\n%s", diff)
	}
	var out bytes.Buffer
	if err := r.printParts(&out); err != nil {
		t.Fatal(err)
	}
	table := `┌────────────────────────┬──────────────┬───────┬────────────────────────┬───────┐
│ part of a forward pass │ prefill (ms) │ share │ decode step, mean (ms) │ share │
├────────────────────────┼──────────────┼───────┼────────────────────────┼───────┤
│              attention │     3000.000 │ 30.0% │                        │       │
│                    mlp │     4000.000 │ 40.0% │               2000.000 │ 50.0% │
│                   head │              │       │               1000.000 │ 25.0% │
│ exchange between ranks │     1000.000 │ 10.0% │                        │       │
│     between operations │     2000.000 │ 20.0% │               1000.000 │ 25.0% │
└────────────────────────┴──────────────┴───────┴────────────────────────┴───────┘
`
	if diff := cmp.Diff(table, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without the parts the output is sglang's alone, asked for or not to be had.
func TestWithoutParts(t *testing.T) {
	for _, args := range []string{"--ops=false", "--device ref"} {
		code, stdout, stderr := benchtest.Output(t.Context(), Program, append(strings.Fields(args), "--model", tiny, "--num-pages", "64", "--input-len", "4", "--output-len", "2")...)
		if code != program.ExitOK || strings.Contains(stdout, "│") {
			t.Errorf("%s: exit code %d, %s%s", args, code, stdout, stderr)
		}
		if told := strings.Contains(stderr, "No split into parts"); told != (args == "--device ref") {
			t.Errorf("%s: messages %q", args, stderr)
		}
	}
}

func TestNewResult(t *testing.T) {
	got := newResult("r", 2, 10, 4, &passes{prefill: 0.5, steps: []float64{0.125, 0.25, 0.125}})
	median, rate := 0.125, 16.0
	want := &result{RunName: "r", BatchSize: 2, InputLen: 10, OutputLen: 4, Prefill: 0.5, PrefillRate: 40, MedianDecode: &median, MedianDecodeRate: &rate, Total: 1, TotalRate: 28}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The layout is sglang's: '{:6.5f} s', '{:9.2f} token/s', total '{:6.3f} s'.
func TestLayout(t *testing.T) {
	var out bytes.Buffer
	r := newResult("", 1, 1024, 3, &passes{prefill: 0.12345, steps: []float64{0.00512, 0.0051}})
	if err := (&config{}).print(&out, r); err != nil {
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
		if code, _, stderr := benchtest.Output(t.Context(), Program, strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
	code, _, stderr := benchtest.Output(t.Context(), Program, "--model", tiny, "--num-pages", "64", "--batch-size", "8", "--input-len", "16")
	if code != program.ExitUsage || !strings.Contains(stderr, "do not fit") {
		t.Errorf("too large: exit code %d, %s", code, stderr)
	}
}

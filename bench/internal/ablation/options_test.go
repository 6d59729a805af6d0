package ablation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/go/llm"
)

// outputOf runs the list with a runner of the test's.
func outputOf(ctx context.Context, measure runner, args ...string) (code int, stdout, stderr string) {
	c := &config{measure: measure}
	var out, err bytes.Buffer
	code = program.Run(ctx, program.Program{Name: "ablation", Command: c.command}, args, &out, &err)
	return code, out.String(), err.String()
}

func summary(output, ttft, p99, tpot, itl float64) metrics.Summary {
	return metrics.Summary{
		OutputThroughput: output, Duration: time.Second,
		TTFT: metrics.Stats{Median: ttft, P99: p99}, TPOT: metrics.Stats{Median: tpot}, ITL: metrics.Stats{Median: itl},
	}
}

// The baseline has 100, 110, 90 tokens a second in its rounds, a median of 100
// and a spread of 20%; what is changed has 80 each time.
func TestOptionsTable(t *testing.T) {
	calls := -2 // the baseline warms up once
	measure := func(_ context.Context, cfg llm.Config) (metrics.Summary, [][]int32, error) {
		calls++
		if cfg.PageSize == 16 {
			return summary(80, 300, 400, 7, 5), [][]int32{{1, 2}}, nil
		}
		return summary([]float64{5, 100, 110, 90}[(calls+2)/2], 200, 400, 10, 0), [][]int32{{1, 2}}, nil
	}
	file := filepath.Join(t.TempDir(), "out.jsonl")
	code, stdout, stderr := outputOf(t.Context(), measure, "--what", "attention-backend,page-size", "--page-sizes", "16,1", "--output-file", file)
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	const cell = ` +│ +`
	for _, want := range [][]string{
		{"", "rounds", `output \(tok/s\)`, `TTFT median \(ms\)`, `TTFT P99 \(ms\)`, `TPOT median \(ms\)`, `ITL median \(ms\)`},
		{"baseline", "3", "100.0", "200.0", "400.0", "10.0", "0.0"},
		{"its spread", "", "20.0%", "0.0%", "0.0%", "0.0%", "n/a"},
		{"page-size 16", "3", `80.0 +-20.0%`, `300.0 +\+50.0%`, `400.0 +\+0.0%`, `7.0 +-30.0%`, "5.0 +n/a"},
	} {
		if !regexp.MustCompile(strings.Join(want, cell)).MatchString(stdout) {
			t.Errorf("no row %q in\n%s", want, stdout)
		}
	}
	for _, want := range []string{
		"Baseline: overlap on, cache-type radix, chunk-size 8192, page-size 1, max-running 256.",
		"Not measured: attention-backend: there is one", "Not measured: page-size 1: the baseline has it.",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
	order := regexp.MustCompile(`(?m)^round (\d) of 3, \d of 2: (.*) \.\.\.$`).FindAllString(stderr, -1)
	if len(order) != 6 || !strings.Contains(order[2], "round 2 of 3, 1 of 2: baseline") {
		t.Errorf("progress: %q", order)
	}
	lines := readLines(t, file)
	if len(lines) != 6 || lines[3].Configuration != "page-size 16" || lines[3].Round != 2 || lines[3].Output != 80 || lines[2].Output != 110 {
		t.Errorf("result file: %+v", lines)
	}
}

func readLines(t *testing.T, path string) []line {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []line
	for d := json.NewDecoder(file); ; {
		var l line
		err := d.Decode(&l)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
}

// Each configuration differs from the baseline in what its name says, in nothing else.
func TestOptionsChangeOneThing(t *testing.T) {
	c := &config{
		chunkSizes: []int{64}, pageSizes: []int{16}, maxRunning: []int{2},
		base: llm.Config{CacheType: "radix", MaxExtendTokens: 512, PageSize: 4, MaxRunningReq: 8, NumPageOverride: 10},
	}
	list, missing, err := c.configurations()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]llm.Config{}
	for name, change := range map[string]func(*llm.Config){
		"baseline":         func(*llm.Config) {},
		"overlap off":      func(cfg *llm.Config) { cfg.DisableOverlap = true },
		"cache-type naive": func(cfg *llm.Config) { cfg.CacheType = "naive" },
		"chunk-size 64":    func(cfg *llm.Config) { cfg.MaxExtendTokens = 64 },
		"page-size 16":     func(cfg *llm.Config) { cfg.PageSize, cfg.NumPageOverride = 16, 3 }, // 40 tokens
		"max-running 2":    func(cfg *llm.Config) { cfg.MaxRunningReq = 2 },
	} {
		cfg := c.base
		change(&cfg)
		want[name] = cfg
	}
	got := map[string]llm.Config{}
	for _, conf := range list {
		got[conf.name] = conf.cfg
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.base.Device, c.what = "cuda", []string{"cuda-graph"}
	if list, _, err := c.configurations(); err != nil || len(list) != 2 || *list[1].cfg.CUDAGraphMaxBS != 0 {
		t.Errorf("on a GPU, cuda-graph: %v, %v", list, err)
	}
	if len(missing) != 2 || !strings.HasPrefix(missing[0], "cuda-graph: ") || !strings.HasPrefix(missing[1], "attention-backend: ") {
		t.Errorf("not measured: %q", missing)
	}
}

func TestOptionsOtherBaseline(t *testing.T) {
	var seen []llm.Config
	measure := func(_ context.Context, cfg llm.Config) (metrics.Summary, [][]int32, error) {
		seen = append(seen, cfg)
		return summary(1, 1, 1, 1, 1), nil, nil
	}
	code, stdout, stderr := outputOf(t.Context(), measure, "--what", "overlap,cache-type", "--disable-overlap-schedule", "--cache-type", "naive", "--rounds", "1")
	if code != program.ExitOK || !strings.Contains(stdout, "overlap on") || !strings.Contains(stdout, "cache-type radix") || strings.Contains(stdout, "its spread") {
		t.Fatalf("code %d\n%s%s", code, stdout, stderr)
	}
	if len(seen) != 4 || seen[2].DisableOverlap || seen[3].CacheType != "radix" || !seen[3].DisableOverlap {
		t.Errorf("configurations: %+v", seen)
	}
}

func TestOptionsTokensMustBeEqual(t *testing.T) {
	for want, other := range map[string][][]int32{
		"token 1 of request 1 is 9, but the baseline's was 4": {{1, 2}, {3, 9}},
		"request 0 has 1 tokens, but the baseline's had 2":    {{1}, {3, 4}},
		"1 requests were answered, but 2 of the baseline's":   {{1, 2}},
	} {
		measure := func(_ context.Context, cfg llm.Config) (metrics.Summary, [][]int32, error) {
			if cfg.DisableOverlap {
				return summary(1, 1, 1, 1, 1), other, nil
			}
			return summary(1, 1, 1, 1, 1), [][]int32{{1, 2}, {3, 4}}, nil
		}
		code, stdout, stderr := outputOf(t.Context(), measure, "--what", "overlap")
		if code != program.ExitFailed || stdout != "" || !strings.Contains(stderr, "round 1, overlap off: "+want) {
			t.Errorf("code %d, want %q in\n%s%s", code, want, stdout, stderr)
		}
	}
}

// A signal ends the run; what was measured is shown.
func TestOptionsInterrupted(t *testing.T) {
	for after, rows := range map[int]int{0: 0, 1: 0, 2: 2, 3: 3, 4: 4} { // header, baseline, overlap off, and with two rounds the spread
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		measure := func(context.Context, llm.Config) (metrics.Summary, [][]int32, error) {
			if calls++; calls > after {
				cancel()
				return metrics.Summary{}, nil, ctx.Err()
			}
			return summary(1, 1, 1, 1, 1), nil, nil
		}
		code, stdout, _ := outputOf(ctx, measure, "--what", "overlap")
		if n := strings.Count(stdout, "│\n"); code != program.ExitInterrupted || n != rows {
			t.Errorf("after %d: code %d, %d rows, want %d:\n%s", after, code, n, rows, stdout)
		}
	}
}

// The whole list with an engine. 3 requests of 40 tokens, of which 16 are shared:
// with the radix cache they are found, in pages that divide them; a page of 32 has none of them whole.
func TestOptionsEngine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.jsonl")
	code, stdout, stderr := output(t, "--model", tiny, "--num-pages", "1024", "--requests", "3", "--input", "40", "--shared", "16", "--output", "4",
		"--rounds", "1", "--chunk-sizes", "8", "--page-sizes", "4,32", "--max-running", "1", "--output-file", file)
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	var names []string
	for _, l := range readLines(t, file) {
		names = append(names, l.Configuration)
		want := map[string]int{"cache-type naive": 0, "page-size 32": 0}
		cached, known := want[l.Configuration]
		if !known {
			cached = 3 * 16
		}
		if l.CachedTokens != cached || l.Completed != 3 || l.InputTokens != 120 || l.OutputTokens != 12 || l.Output <= 0 || l.TTFT <= 0 || l.P99TTFT < l.TTFT || l.TPOT <= 0 || l.ITL <= 0 {
			t.Errorf("%+v, want %d cached tokens", l, cached)
		}
	}
	want := []string{"baseline", "overlap off", "cache-type naive", "chunk-size 8", "page-size 4", "page-size 32", "max-running 1"}
	if !slices.Equal(names, want) {
		t.Errorf("measured %q, want %q", names, want)
	}
	if !strings.Contains(stdout, "The tokens are equal.") || !strings.Contains(stdout, "Not measured: cuda-graph: ") {
		t.Error(stdout)
	}
}

// A request that the engine refuses ends the others, and is what is reported.
func TestBurstFails(t *testing.T) {
	eng, err := engine.Open(t.Context(), llm.Config{Model: tiny, NumPageOverride: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	good, bad := llm.Request{TokenIDs: []int32{1}, Params: engine.Greedy(400)}, llm.Request{TokenIDs: []int32{-1}, Params: engine.Greedy(2)}
	if _, _, err := burst(t.Context(), eng, []llm.Request{good, bad, good}); !errors.As(err, new(*llm.InvalidError)) {
		t.Errorf("got %v, want what is wrong with token -1", err)
	}
}

// The variable would make "overlap on" a lie.
func TestOptionsOverlapVariable(t *testing.T) {
	t.Setenv(noOverlap, "1")
	if code, _, stderr := output(t, "--what", "overlap"); code != program.ExitUsage || !strings.Contains(stderr, noOverlap) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestOptionsUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--what pages":                         `--what "pages": there is no such option; want some of overlap, cuda-graph, cache-type, attention-backend, chunk-size, page-size, max-running`,
		"--what cuda-graph":                    "nothing is left to measure. cuda-graph: graphs replay",
		"--requests 0":                         `"0" for "--requests"`,
		"--input 8 --shared 8":                 `"8" for "--shared" flag: want 0 to 7`,
		"--output 1":                           `"1" for "--output"`,
		"--rounds 0":                           `"0" for "--rounds"`,
		"--page-sizes 16,257":                  `"257" for "--page-sizes" flag: want 1 to 256`,
		"--chunk-sizes 0":                      `"0" for "--chunk-sizes"`,
		"--max-running":                        "max-running",
		"--page-size 0":                        `"0" for "--page-size"`,
		"--cache-type lru":                     `--cache-type "lru": want radix or naive`,
		"--model " + tiny + " --input 600":     "the engine takes 512 tokens of a request",
		"--output-file /nonexistent/out.jsonl": "--output-file",
		"options":                              `argument "options" is not a flag`,
	} {
		if code, _, stderr := output(t, strings.Fields(args)...); code != program.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want %q in %s", args, code, want, stderr)
		}
	}
}

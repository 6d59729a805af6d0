package scaling

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"gonum.org/v1/plot/plotter"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tiny = "../../../go/internal/model/testdata/tiny/llama-tied"

func TestScaling(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.svg")
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--model", tiny, "--num-pages", "512", "--threads-list", "1", "2",
		"--batch-size", "1", "3", "--depth", "16", "40", "--prefill-len", "20", "--steps", "2", "--plot", file)
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	for _, row := range []string{"prefill of 20", "decode 1 at 32", "decode 3 at 32", "decode 1 at 16", "decode 1 at 40"} {
		if !regexp.MustCompile(row + `( *│ *\d+\.\d+){3} │`).MatchString(stdout) {
			t.Errorf("no row %q with three numbers in\n%s", row, stdout)
		}
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"over threads", "2 threads", "over its depth", "tokens/s"} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("the plot does not say %q", text)
		}
	}
}

func TestWriteTable(t *testing.T) {
	var out bytes.Buffer
	cells := []cell{{1, 0, 512, 100}, {1, 4, 32, 10}, {2, 0, 512, 190}, {2, 4, 32, 15}}
	if err := writeTable(&out, cells); err != nil {
		t.Fatal(err)
	}
	want := `┌────────────────┬───────────┬───────────┬──────────────┐
│    tokens/s    │ 1 threads │ 2 threads │ last / first │
├────────────────┼───────────┼───────────┼──────────────┤
│ prefill of 512 │     100.0 │     190.0 │         1.90 │
│ decode 4 at 32 │      10.0 │      15.0 │         1.50 │
└────────────────┴───────────┴───────────┴──────────────┘
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLines(t *testing.T) {
	cells := []cell{{1, 0, 512, 100}, {1, 1, 32, 7}, {1, 4, 32, 10}, {1, 1, 64, 6}, {2, 1, 32, 9}}
	want := []any{"1 threads", plotter.XYs{{X: 32, Y: 7}, {X: 64, Y: 6}}, "2 threads", plotter.XYs{{X: 32, Y: 9}}}
	if diff := cmp.Diff(want, allPanels[2].lines(cells)); diff != "" {
		t.Errorf("depth (-want +got):\n%s", diff)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--threads-list 0":  "--threads-list",
		"--plot x.gif":      ".svg or .png",
		"--depth 999999999": "--depth",
	} {
		code, _, stderr := benchtest.Output(t.Context(), Program, strings.Fields(args)...)
		if code != program.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

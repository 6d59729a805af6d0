package selftest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSelftest(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := program.Run(t.Context(), Program, []string{"--seconds", "0.05"}, &stdout, &stderr); code != program.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	for _, want := range []string{"mean TTFT at 20 req/s", "50.00 ms", "mean ITL", "mean E2E", "200.00 ms", "median TTFT of 64 at once", "rate that is sent of 500 offered", "highest rate that is held", "chunks read a second from 16 streams", "200000: "} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is missing in\n%s", want, stdout.String())
		}
	}
}

// One part, several times: the figure is the median, and only that part's rows are there.
func TestRepeats(t *testing.T) {
	values := []float64{30, 21, 22}
	p := part{"x", func(*tester, context.Context) ([]figure, error) {
		f := figure{what: "a", unit: "ms", truth: 20, got: values[0], aim: "at most 24 ms", reaches: func(v float64) bool { return v <= 24 }}
		values = values[1:]
		return []figure{f}, nil
	}}
	got, err := (&tester{repeats: 3}).repeat(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "20.00 ms", "22.00 ms", "+2.00 ms", "at most 24 ms: reached"}, got[0].cells()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	missed := figure{what: "b", unit: "req/s", truth: 500, got: 450, aim: "1%", reaches: within(500)}
	if diff := cmp.Diff([]string{"b", "500 req/s", "450 req/s", "-10.00%", "1%: missed"}, missed.cells()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--parts", "burst", "--repeats", "2")
	if code != program.ExitOK || !strings.Contains(stdout, "at once") || strings.Contains(stdout, "req/s") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

func TestEndings(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if code := program.Run(ctx, Program, nil, &out, &out); code != program.ExitInterrupted {
		t.Errorf("interrupted: exit code %d, %s", code, out.String())
	}
	for _, args := range []string{"--seconds 0", "--seconds nan", "--repeats 0", "--parts x", "--parts ="} {
		if code, _, stderr := benchtest.Output(t.Context(), Program, strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

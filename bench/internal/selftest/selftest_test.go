package selftest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSelftest(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := program.Run(t.Context(), Program, []string{"--seconds", "0.05"}, &stdout, &stderr); code != program.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	for _, want := range []string{"mean TTFT at 20 req/s", "50.00 ms", "mean ITL", "mean E2E", "200.00 ms", "median TTFT of 64 at once", "req/s", "per second"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is missing in\n%s", want, stdout.String())
		}
	}
}

func TestEndings(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if code := program.Run(ctx, Program, nil, &out, &out); code != program.ExitInterrupted {
		t.Errorf("interrupted: exit code %d, %s", code, out.String())
	}
	if code := program.Run(t.Context(), Program, []string{"--seconds", "0"}, &out, &out); code != program.ExitUsage {
		t.Errorf("no time: exit code %d", code)
	}
}

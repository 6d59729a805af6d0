package sweep

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

// server answers n requests at any rate, all good up to limit, none beyond.
func server(limit float64, n int) func(float64) (*probe, error) {
	return func(rate float64) (*probe, error) {
		p := &probe{rate: rate, sent: n}
		if rate <= limit {
			p.good = n
		}
		return p, nil
	}
}

func TestSearch(t *testing.T) {
	for _, tt := range []struct {
		name            string
		limit, low, top float64
		n, probes       int
		want            string
	}{
		{"found", 10, 1, 1000, 200, 20, "met at 9.514 req/s and missed at 10.37. With headroom (x0.8): 7.611."},
		{"found below the first", 3, 8, 1000, 200, 20, "met at 2.828 req/s and missed at 3.084."},
		{"never missed", 1e9, 1, 4, 200, 20, "met at 4 req/s, the highest that is sure."},
		{"never met", 0, 4, 4, 200, 3, "Every rate down to 1 req/s misses"},
		{"few probes", 10, 1, 1000, 200, 3, "met at 4 req/s, the highest that is sure."},
		// Even 50 of 50 leave a share of 92.9% possible.
		{"too few requests", 10, 1, 1000, 50, 20, "Undecided. At 1 req/s 50 of 50 requests met it, which does not decide"},
	} {
		s := &search{wanted: 0.95, low: tt.low, top: tt.top, probes: tt.probes, measure: server(tt.limit, tt.n)}
		if err := s.run(); err != nil {
			t.Fatal(err)
		}
		if got := s.verdict(); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if len(s.tried) > tt.probes {
			t.Errorf("%s: %d probes, more than %d", tt.name, len(s.tried), tt.probes)
		}
	}
	broken := errors.New("broken")
	s := &search{wanted: 0.95, low: 1, top: 2, probes: 3, measure: func(float64) (*probe, error) { return nil, broken }}
	if err := s.run(); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestSLO(t *testing.T) {
	_, url := benchtest.Serve(t, mockserver.Config{TTFT: time.Millisecond})
	code, stdout, stderr := output(t.Context(), "--base-url", url, "--slo", "ttft:60000", "e2el:60000", "--rates", "1000,2000", "--num-prompts", "80")
	if code != program.ExitOK || !strings.Contains(stdout, "1000 req/s: 80 of 80 good") || !strings.Contains(stdout, "The objective is met at 2000 req/s, the highest that is sure.") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	for _, args := range []string{"--slo ttft:5 --concurrencies 1", "--slo x --rates 1", "--slo ttft:5 --rates 1 --attainment 1", "--slo ttft:5 --rates 1 --probes 0"} {
		if code, _, _ := output(t.Context(), strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

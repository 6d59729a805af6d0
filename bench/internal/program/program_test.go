package program

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestSpread(t *testing.T) {
	for in, want := range map[string]string{
		"--goodput ttft:500 tpot:50 --seed 1": "--goodput=ttft:500 --goodput=tpot:50 --seed 1",
		"--goodput=ttft:500 --seed 1":         "--goodput=ttft:500 --seed 1",
		"--seed 1 --goodput":                  "--seed 1 --goodput",
		"--header a=b":                        "--header=a=b",
		"--other a b":                         "--other a b",
		"--goodput --seed 1":                  "--goodput= --seed 1",
	} {
		got := strings.Join(spread(strings.Fields(in), []string{"goodput", "header"}), " ")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code int
		text string
	}{
		{nil, ExitOK, ""},
		{errors.New("broken"), ExitFailed, "demo: broken\n"},
		{fmt.Errorf("x: %w", ErrInterrupted), ExitInterrupted, "demo: interrupted; the result is partial\n"},
		{Usage(errors.New("--x is wrong")), ExitUsage, "demo: --x is wrong\nRun with --help for the flags and examples.\n"},
	} {
		var stdout, stderr bytes.Buffer
		p := Program{Name: "demo", Command: func() *cobra.Command {
			return &cobra.Command{Use: "demo", RunE: func(*cobra.Command, []string) error { return tt.err }}
		}}
		if code := Run(t.Context(), p, nil, &stdout, &stderr); code != tt.code || stderr.String() != tt.text {
			t.Errorf("%v: code %d, message %q; want %d, %q", tt.err, code, stderr.String(), tt.code, tt.text)
		}
	}
}

func TestRates(t *testing.T) {
	var r Rates
	if err := r.Set("0.5, 1,1e3"); err != nil || len(r) != 3 || r[2] != 1000 || r.String() != "0.5,1,1000" {
		t.Errorf("%v, %v", r, err)
	}
	for _, bad := range []string{"", "0", "-1", "nan", "1,,2", "x", "1,inf"} {
		if err := r.Set(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

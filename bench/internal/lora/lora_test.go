package lora

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/dataset"
)

func parse(t *testing.T, args string) (*Adapters, error) {
	t.Helper()
	a, f := &Adapters{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	a.Define(f)
	if err := f.Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	return a, a.Check()
}

// Shares of 7000 requests: equal in turn and at random; 4/7, 2/7, 1/7 for an alpha of 2.
func TestPick(t *testing.T) {
	for args, want := range map[string][3]int{
		"": {2333, 2333, 2333}, "--lora-request-distribution distinct": {2334, 2333, 2333},
		"--lora-request-distribution skewed --lora-zipf-alpha 2": {4000, 2000, 1000},
	} {
		a, err := parse(t, args+" --lora-name a --lora-name b --lora-name c")
		if err != nil {
			t.Fatal(err)
		}
		src := dataset.NewSource("", 1, 42)
		got := map[string]int{}
		for range 7000 {
			got[a.Pick(src)]++
		}
		for i, name := range a.Names {
			if d := got[name] - want[i]; d < -150 || d > 150 || strings.Contains(args, "distinct") && d != 0 {
				t.Errorf("%q: %d requests to %s, want about %d", args, got[name], name, want[i])
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, args := range []string{"--lora-request-distribution often", "--lora-request-distribution skewed --lora-zipf-alpha 1"} {
		if _, err := parse(t, args); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// TestA57_DocumentedCommandLines: the command lines of mini-sglang's documents run
// as they stand, by argparse's rules of prefixes.
func TestA57_DocumentedCommandLines(t *testing.T) {
	for line, check := range map[string]func(c llm.Config) bool{
		"--model M --port=0":                           func(c llm.Config) bool { return c.Model == "M" },
		"--model-path ~/m --port 0":                    func(c llm.Config) bool { return c.Model == "~/m" },
		"--tp 1 --cache naive --port 0":                func(c llm.Config) bool { return c.TPSize == 1 && c.CacheType == "naive" },
		"--attn fa,fi --port 0":                        func(c llm.Config) bool { return c.Device == "auto" },
		"--num-pages 64 --page-size 16 --port 0":       func(c llm.Config) bool { return c.NumPageOverride == 64 && c.PageSize == 16 },
		"--model M --graph 4 --max-running 2 --port 0": func(c llm.Config) bool { return c.MaxRunningReq == 2 },
	} {
		f := &fakeEngines{}
		code, _, stderr := call(t, ended(), f, "", append([]string{"serve"}, strings.Fields(line)...)...)
		if code != 0 || !check(f.config) {
			t.Errorf("%s: exit code %d, %+v: %s", line, code, f.config, stderr)
		}
	}
	code, stdout, stderr := call(t, t.Context(), &fakeEngines{}, "hello\n", "serve", "--model", "M", "--shell")
	if code != 0 || !strings.Contains(stdout, "<HELLO>") {
		t.Errorf("--shell: exit code %d, %q: %s", code, stdout, stderr)
	}
	for _, line := range []string{"--m x", "--nonsense", "--num 3"} {
		code, _, stderr := call(t, ended(), &fakeEngines{}, "", append([]string{"serve"}, strings.Fields(line)...)...)
		if code != exitUsage || !strings.HasPrefix(stderr, "Usage: ") {
			t.Errorf("%s: exit code %d: %s", line, code, stderr)
		}
	}
	code, stdout, _ = call(t, t.Context(), &fakeEngines{}, "", "serve", "--help")
	if code != 0 || !strings.Contains(stdout, "(default 1919)") || !strings.Contains(stdout, `(default "127.0.0.1")`) {
		t.Errorf("--help: exit code %d: %s", code, stdout)
	}
}

// TestA53_SignalWhileLoading: a command that is to end while it loads does so, and
// that is no failure.
func TestA53_SignalWhileLoading(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	f := &fakeEngines{}
	if code, _, stderr := call(t, ctx, f, "", "serve", "--port", "0"); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

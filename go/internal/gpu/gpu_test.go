package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// driver compiles a library that passes for the driver's.
func driver(t *testing.T, source string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "driver.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestCount asks in a process of its own, since a library stays loaded.
func TestCount(t *testing.T) {
	if os.Getenv("MINISGL_TEST_COUNT") != "" {
		n, err := Count()
		if err == nil {
			t.Logf("counted %d", n)
		} else {
			t.Logf("counted none: %v", err)
		}
		return
	}
	for _, c := range []struct{ what, source, want string }{
		{"two", "int cuInit(unsigned f) { return f; } int cuDeviceGetCount(int *n) { *n = 2; return 0; }", "counted 2"},
		{"none", "int cuInit(unsigned f) { return f; } int cuDeviceGetCount(int *n) { *n = 0; return 0; }", "finds no GPU"},
		{"no start", "int cuInit(unsigned f) { return f + 100; } int cuDeviceGetCount(int *n) { *n = 1; return 0; }", "CUDA error 100"},
		{"no driver", "int other(void) { return 0; }", "has no cuInit"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run", "TestCount", "-test.v")
		cmd.Env = append(os.Environ(), "MINISGL_TEST_COUNT=1", "LD_LIBRARY_PATH="+driver(t, c.source))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s; want %q", c.what, err, out, c.want)
		}
	}
}

package flashinfer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpen tries libraries in processes of their own, since one stays loaded.
func TestOpen(t *testing.T) {
	if os.Getenv("MINISGL_TEST_FLASHINFER") != "" {
		if attend, err := Open(); err != nil {
			t.Log(err)
		} else if attend != nil {
			t.Log("opened")
		}
		return
	}
	header, err := os.ReadFile("../../../kernels/cuda/msgl_fi.h")
	if err != nil {
		t.Fatal(err)
	}
	source := string(header) + "int msgl_fi_version(void) { return MSGL_FI_VERSION; } int msgl_fi_attend(const msgl_fi_task *task) { return task != 0; }"
	for _, c := range []struct{ what, source, want string }{
		{"no library", "", "cannot open shared object file: No such file or directory; make flashinfer builds it"},
		{"another library", "int other(void) { return 0; }", "is of another version"},
		{"another version", "int msgl_fi_version(void) { return 0; } int msgl_fi_attend(const void *task) { return 0; }", "is of another version"},
		{"the library", source, "opened"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run", "TestOpen", "-test.v")
		cmd.Env = append(os.Environ(), "MINISGL_TEST_FLASHINFER=1", "LD_LIBRARY_PATH="+build(t, c.source))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s; want %q", c.what, err, out, c.want)
		}
	}
}

func build(t *testing.T, source string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if source == "" {
		return dir
	}
	file := filepath.Join(dir, "flashinfer.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libmsgl_flashinfer.so"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

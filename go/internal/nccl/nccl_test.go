//go:build !cuda && amd64

package nccl

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/device/cuda"
	"github.com/minisgl/minisgl/go/internal/ops"
	kernels "github.com/minisgl/minisgl/kernels/cuda"
)

// library is NCCL for GPUs that are emulated one at a time: each gets its own values for
// those of all three. Type 7 is float32.
const library = `
#include <string.h>
int ncclCommInitAll(void **comms, int n, const int *devices) {
  static int numbers[8];
  for (int i = 0; i < n; i++) numbers[i] = devices[i], comms[i] = &numbers[i];
  return n == 7 ? 5 : 0;
}
int ncclAllGather(const void *own, void *all, unsigned long count, int type, void *comm, void *stream) {
  if (type != 7 || stream || *(int *)comm != 2) return 4;
  for (int i = 0; i < 3; i++) memcpy((char *)all + i * count * 4, own, count * 4);
  return 0;
}
int ncclCommAbort(void *comm) { return 0; }
int ncclCommDestroy(void *comm) { return 0; }
const char *ncclGetErrorString(int code) { return code == 5 ? "invalid usage" : "?"; }
`

// TestOpen tries libraries in processes of their own, since one stays loaded.
func TestOpen(t *testing.T) {
	if os.Getenv("MINISGL_TEST_NCCL") != "" {
		exchange(t)
		return
	}
	for _, c := range []struct{ what, source, want string }{
		{"no library", "", "libnccl.so.2: cannot open shared object file"},
		{"another library", "int other(void) { return 0; }", "lacks a function"},
		{"NCCL", library, "gathered"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run", "TestOpen", "-test.v")
		cmd.Env = append(os.Environ(), "MINISGL_TEST_NCCL=1", "LD_LIBRARY_PATH="+build(t, c.source))
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
	file := filepath.Join(dir, "nccl.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libnccl.so.2"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// exchange gathers on an emulated GPU, until that is aborted.
func exchange(t *testing.T) {
	if _, err := Open(7); err != nil && strings.Contains(err.Error(), "can't be loaded") {
		t.Log(err)
		return
	} else if err == nil || !strings.Contains(err.Error(), "invalid usage") {
		t.Fatalf("seven GPUs: %v", err)
	}
	g, err := Open(3)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	dev, err := cuda.NewEmulated(cuda.Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	gather, rank := g.Rank(2)
	dev.UseExchange(cuda.Exchange{Exchange: kernels.Exchange{Gather: gather, Rank: rank, Ranks: 3}, Abort: g.Abort, Aborted: g.Aborted, Close: g.Close})
	defer dev.Close()
	a, err := dev.Alloc(4 * 16)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Write(a, ops.Bytes([]float32{1, 2, 3, 4})); err != nil {
		t.Fatal(err)
	}
	var l ops.List
	dst := ops.New(a+16, 2, 6, ops.F32)
	l.AllGather(dst, ops.New(a, 2, 2, ops.F32))
	run := func() error {
		if err := dev.Submit(&l); err != nil {
			t.Fatal(err)
		}
		return dev.Wait()
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 12)
	if err := dev.Read(ops.Bytes(got), dst.Addr); err != nil || !slices.Equal(got, []float32{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}) {
		t.Fatalf("got %v, %v", got, err)
	}
	g.Abort()
	if err := run(); err == nil || !strings.Contains(err.Error(), "exchange with the other ranks failed") {
		t.Fatalf("after an abort: %v", err)
	}
	t.Log("gathered")
}

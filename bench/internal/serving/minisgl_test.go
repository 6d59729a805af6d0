package serving

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/program"
)

// serveMinisgl runs this project's own server until the test ends, and returns
// its address.
func serveMinisgl(t *testing.T, args ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "minisgl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/minisgl/minisgl/go/cmd/minisgl").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(bin, append([]string{"serve", "--port", "0", "--drain-timeout", "1"}, args...)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	ready := regexp.MustCompile(`ready.* url=(\S+)`)
	for lines.Scan() {
		if m := ready.FindStringSubmatch(lines.Text()); m != nil {
			return m[1]
		}
		t.Log(lines.Text())
	}
	t.Fatal("the server did not get ready")
	return ""
}

// Two hundred streams at once over WebSockets, and over HTTP: no message is lost
// or doubled, so each has its tokens, one by one.
func TestMinisglStreams(t *testing.T) {
	url := serveMinisgl(t, "--model", "../../../go/internal/model/testdata/tiny/llama-tied", "--num-pages", "4096", "--max-seq-len-override", "64")
	for _, backend := range []string{"minisgl-ws", "minisgl"} {
		file := filepath.Join(t.TempDir(), "out.jsonl")
		code, _, stderr := benchtest.Output(t.Context(), Program, "--backend", backend, "--base-url", url, "--dataset-name", "random-ids", "--num-prompts", "200",
			"--random-input-len", "8", "--random-output-len", "16", "--random-range-ratio", "1", "--output-file", file, "--output-details")
		if code != program.ExitOK {
			t.Fatal(stderr)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Completed int         `json:"completed"`
			Failed    int         `json:"failed"`
			Lens      []int       `json:"output_lens"`
			ITLs      [][]float64 `json:"itls"`
		}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if got.Completed != 200 || got.Failed != 0 || len(got.Lens) != 200 || len(got.ITLs) != 200 {
			t.Fatalf("%s: %d completed, %d failed", backend, got.Completed, got.Failed)
		}
		for i := range got.Lens {
			if got.Lens[i] != 16 || len(got.ITLs[i]) != 15 {
				t.Errorf("%s: answer %d has %d tokens and %d gaps", backend, i, got.Lens[i], len(got.ITLs[i]))
			}
		}
	}
}

package replay

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/benchtest"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	trace, result := filepath.Join(dir, "traces.jsonl"), filepath.Join(dir, "out.jsonl")
	text := `{"timestamp":100,"chat_id":1,"parent_chat_id":-1,"messages":[{"role":"user","content":"one"}],"max_tokens":2}
{"timestamp":100.2,"prompt":"other","max_tokens":3,"seed":7}
{"timestamp":100.4,"chat_id":2,"parent_chat_id":1,"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"recorded"},{"role":"user","content":"two"}],"max_tokens":2}
{"timestamp":500,"prompt":"outside the window"}
`
	if err := os.WriteFile(trace, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	mock, url := benchtest.Serve(t, mockserver.Config{PromptTokens: 5})
	code, stdout, stderr := benchtest.Output(t.Context(), Program, "--traces", trace, "--target", url, "--scale", "0.25", "--to", "1m", "--warmup-requests", "0", "--output-file", result, "--output-details")
	if code != program.ExitOK {
		t.Fatalf("%d: %s", code, stderr)
	}
	for _, want := range []string{"Traffic request rate:                    trace", "Successful requests:                     3 ", "sglang:prompt_tokens_total"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "were asked for") {
		t.Errorf("no number was asked for in\n%s", stdout)
	}
	var got struct {
		Intended []float64 `json:"intended_times"`
	}
	data, err := os.ReadFile(result)
	if err != nil || json.Unmarshal(data, &got) != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{0, 0.05, 0.1}, got.Intended); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
	all := strings.Join(mock.Bodies(), "\n")
	if strings.Contains(all, "recorded") || strings.Contains(all, "timestamp") || strings.Contains(all, "chat_id") || !strings.Contains(all, `" t0 t1"`) {
		t.Errorf("bodies:\n%s", all)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{"", "--traces x --format pcap", "--traces x --scale 0", "--traces x --from 5s --to 3s", "--traces x --limit 0", "--traces x --target ftp://x"} {
		if code, _, stderr := benchtest.Output(t.Context(), Program, strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

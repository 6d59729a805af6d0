package programs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/bench/internal/program"
)

// Each program has a line, help that names every flag's use, and an example.
func TestUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := usage(nil, &stdout, &stderr); code != program.ExitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
	for _, p := range all {
		if !strings.Contains(stdout.String(), "  "+p.Name+" ") {
			t.Errorf("%s is missing in\n%s", p.Name, stdout.String())
		}
		var help, errs bytes.Buffer
		if code := program.Run(t.Context(), p, []string{"--help"}, &help, &errs); code != program.ExitOK || !strings.Contains(help.String(), "--help") {
			t.Errorf("%s --help: exit code %d, %s%s", p.Name, code, help.String(), errs.String())
		}
	}
	if code := usage([]string{"nonsense"}, &stdout, &stderr); code != program.ExitUsage || !strings.Contains(stderr.String(), `"nonsense"`) {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}

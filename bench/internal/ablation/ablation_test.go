package ablation

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/bench/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tiny = "../../../go/internal/model/testdata/tiny/llama-tied"

func output(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = program.Run(t.Context(), Program, args, &out, &err)
	return code, out.String(), err.String()
}

// Two users of two turns of 8 tokens in and 3 out compute 2·(8+19) prompt tokens
// with the naive cache. The radix cache finds what was said before, of which the
// answer's last token has no KV yet.
func TestTurns(t *testing.T) {
	code, stdout, stderr := output(t, "turns", "--model", tiny, "--users", "2", "--turns", "2", "--input", "8", "--output", "3")
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	for _, want := range []string{`naive │.*│ +54 │ +0 │`, `radix │.*│ +34 │ +20 │`} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("no row matches %q in\n%s", want, stdout)
		}
	}
}

func TestMixed(t *testing.T) {
	code, stdout, stderr := output(t, "mixed", "--model", tiny, "--streams", "1", "--output", "4", "--prompts", "1", "--prompt", "8", "--chunks", "0,4")
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	if n := strings.Count(stdout, "│\n"); n != 3 {
		t.Errorf("%d rows, want a header and 2:\n%s", n, stdout)
	}
}

// The tiny model has no chat template and repeats nothing to speak of; that the
// tokens are equal is checked by the program.
func TestSpeculation(t *testing.T) {
	code, stdout, stderr := output(t, "speculation", "--model", tiny, "--output", "8", "--rounds", "1", "--draft-tokens", "2", "--max-seq-len", "600")
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	if n := strings.Count(stdout, "│\n"); n != 4 || !strings.Contains(stdout, "The tokens are equal.") {
		t.Errorf("%d rows, want a header and 3:\n%s", n, stdout)
	}
}

// Most of an answer with long keys is forced, less of one with short ones.
func TestJumpForward(t *testing.T) {
	code, stdout, stderr := output(t, "jump-forward", "--model", tiny, "--rounds", "1")
	if code != program.ExitOK {
		t.Fatal(stderr)
	}
	for _, want := range []string{`long keys │.* │ +[6-9]\d % │`, `short keys │.* │ +[1-5]\d % │`, "The tokens are equal."} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("nothing matches %q in\n%s", want, stdout)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{"turns --turns 1", "mixed --streams 0", "speculation --at-once 0", "jump-forward --rounds 0", "turns x", "turns --users many"} {
		if code, _, stderr := output(t, strings.Fields(args)...); code != program.ExitUsage {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// PythonEnv names the environment variable that holds the Python interpreter to run pip with, python3 without it.
const PythonEnv = "MINISGL_PYTHON"

// pipDownload fetches a package's wheel into dir. Where it comes from is up to pip's own settings.
func pipDownload(ctx context.Context, requirement, dir string, progress io.Writer) error {
	python := os.Getenv(PythonEnv)
	if python == "" {
		python = "python3"
	}
	var output tail
	command := exec.CommandContext(ctx, python, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
		"--disable-pip-version-check", "--no-input", "-d", dir, requirement)
	both := io.MultiWriter(progress, &output)
	command.Stdout, command.Stderr = both, both
	if file, ok := progress.(*os.File); ok {
		command.Stdout = file // pip draws its progress bar only when it writes to a terminal itself
	}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 5 * time.Second
	err := command.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no Python at %q, needed to download: install Python 3.10 or later with pip, set %s to one, "+
			"or give the path of a local model: %w", python, PythonEnv, err)
	case strings.Contains(output.String(), "No module named pip"):
		return fmt.Errorf("%s has no pip: install it (`%s -m ensurepip`), set %s to a Python that has it, "+
			"or give the path of a local model", python, python, PythonEnv)
	}
	return fmt.Errorf("`%s -m pip download %s` failed (%w): %s; check the network and pip's index settings, "+
		"or give the path of a local model", python, requirement, err, output.lastError())
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - tailBytes; extra > 0 {
		t.kept = bytes.Clone(t.kept[extra:])
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }

// lastError returns the last line that pip marks as an error, or the last line.
func (t *tail) lastError() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "ERROR:") {
			return lines[i]
		}
	}
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return "no output"
}

package shell

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	historyLines    = 1000
	historyLineSize = 4096     // longer lines are not kept
	historySize     = 64 << 20 // a larger file is none of ours
)

// HistoryPath is the file in which lines are kept from one conversation to the
// next: in $XDG_STATE_HOME/minisgl, else ~/.local/state/minisgl.
func HistoryPath() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "minisgl", "shell_history"), nil
}

// readHistory returns the last lines of the file. When it holds more it is cut to
// them.
func readHistory(path string) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > historySize {
		return nil, errors.New(path + " is no file of a history")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); utf8.ValidString(line) && line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) <= historyLines {
		return lines, nil
	}
	lines = lines[len(lines)-historyLines:]
	return lines, writeHistory(path, os.O_TRUNC, lines)
}

// appendHistory adds a line to the file, which is made if it isn't there.
func appendHistory(path, line string) error {
	if len(line) > historyLineSize {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeHistory(path, os.O_APPEND|os.O_CREATE, []string{line})
}

func writeHistory(path string, how int, lines []string) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|how, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriter(file)
	for _, line := range lines {
		_, _ = out.WriteString(line + "\n") // Flush tells
	}
	return out.Flush()
}

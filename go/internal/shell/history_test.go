package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHistory(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	path, err := HistoryPath()
	if err != nil || !strings.HasSuffix(path, "/minisgl/shell_history") {
		t.Fatal(path, err)
	}
	if lines, err := readHistory(path); err != nil || lines != nil {
		t.Fatalf("of nothing: %v, %v", lines, err)
	}
	var all []string
	for i := range historyLines + 10 {
		all = append(all, fmt.Sprintf("line␤%d", i))
		if err := appendHistory(path, all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := appendHistory(path, strings.Repeat("x", historyLineSize+1)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time the file is cut
		lines, err := readHistory(path)
		if err != nil || !slices.Equal(lines, all[10:]) {
			t.Fatalf("%v, %d lines from %q", err, len(lines), lines[0])
		}
	}
	data, err := os.ReadFile(path)
	if err != nil || strings.Count(string(data), "\n") != historyLines {
		t.Errorf("%v, %d lines in the file", err, strings.Count(string(data), "\n"))
	}
	for name, perm := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != perm {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestHistoryThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	if _, err := readHistory(dir); err == nil {
		t.Error("a folder is read")
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("a\n\xff\n\nb"), 0o600); err != nil {
		t.Fatal(err)
	}
	if lines, err := readHistory(broken); err != nil || !slices.Equal(lines, []string{"a", "b"}) {
		t.Errorf("%v, %v", lines, err)
	}
	if err := appendHistory(filepath.Join(broken, "history"), "a"); err == nil {
		t.Error("a file is a folder")
	}
}

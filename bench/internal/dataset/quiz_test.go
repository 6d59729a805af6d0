package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHellaSwag(t *testing.T) {
	var text strings.Builder
	for i := range 23 {
		fmt.Fprintf(&text, `{"activity_label":"act%d","ctx":"ctx%d","endings":["no","yes%d","no","no"],"label":1}`+"\n", i, i, i)
	}
	rows, err := source(write(t, text.String()), 2, false).HellaSwag()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	first := rows[0].Text
	if !strings.HasPrefix(first, "act0: ctx0 yes0\n\nact1:") || !strings.HasSuffix(first, "act19: ctx19 yes19\n\nact20: ctx20 ") || rows[0].OutputLen != 1 || rows[0].PromptLen != 20*3+2+1 {
		t.Errorf("%+v", rows[0])
	}
	if _, err := source(write(t, `{"activity_label":"a","endings":[],"label":3}`), 2, false).HellaSwag(); err == nil || !strings.Contains(err.Error(), "label 3 of 0") {
		t.Errorf("a label without an ending: %v", err)
	}
}

func TestMMLU(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"dev/high_school_physics_dev.csv":   "\"What, then?\",one,two,three,four,C\n",
		"test/high_school_physics_test.csv": "q1,a,b,c,d,A\nq2,a,b,c,d,B\nq3,a,b,c,d,B\n",
		"test/broken_test.csv":              "q1,a\n",
		"dev/broken_dev.csv":                "q,a,b,c,d,A\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := source(filepath.Join(dir, "test", "high_school_physics_test.csv"), 2, false).MMLU()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	want := `The following are multiple choice questions (with answers) about high school physics.

What, then?
A. one
B. two
C. three
D. four
Answer: C

q2
A. a
B. b
C. c
D. d
Answer:`
	if rows[1].Text != want {
		t.Errorf("%q, want %q", rows[1].Text, want)
	}
	for _, path := range []string{"", filepath.Join(dir, "test", "other.csv"), filepath.Join(dir, "test", "none_test.csv"), filepath.Join(dir, "test", "broken_test.csv")} {
		if _, err := source(path, 2, false).MMLU(); err == nil {
			t.Errorf("%q: no error", path)
		}
	}
}

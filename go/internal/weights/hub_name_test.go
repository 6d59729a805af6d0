package weights

import (
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseHubName(t *testing.T) {
	for _, test := range []struct {
		model string
		want  hubName
	}{
		{"Qwen/Qwen3-0.6B", hubName{id: "Qwen/Qwen3-0.6B"}},
		{"a_b/c.d@v1.0", hubName{id: "a_b/c.d", revision: "v1.0"}},
		{"a/b@refs/pr/1", hubName{id: "a/b", revision: "refs/pr/1"}},
		{"a/b-GGUF/x/y.Q4_0.gguf@main", hubName{id: "a/b-GGUF", file: "x/y.Q4_0.gguf", revision: "main"}},
	} {
		got, ok, err := parseHubName(test.model)
		if got != test.want || !ok || err != nil || got.String() != test.model {
			t.Errorf("%q: got %+v, %v, %v", test.model, got, ok, err)
		}
	}
	for _, path := range []string{"", "model", "model@main", "a/b/c", "/a/b", "./a", "../a", "~/a", "a.gguf", "dir/a.gguf"} {
		if _, ok, err := parseHubName(path); ok || err != nil {
			t.Errorf("%q passes for a hub's name (%v)", path, err)
		}
	}
	for _, wrong := range []string{
		"a/..", "a/b--c", "a/b..c", "a/.b", "-a/b", "a/b c", `a/b\c`, "a/b@", "a/b@../x", "a/b@/x", "a/b@x\n", "a/b@" + strings.Repeat("x", 201),
		"a/b/../c.gguf", "a/b//c.gguf", "a/" + strings.Repeat("x", 100), "a/b/" + strings.Repeat("x/", 300) + "c.gguf", "a/é",
	} {
		if _, ok, err := parseHubName(wrong); !ok || err == nil {
			t.Errorf("%q is taken (%v, %v)", wrong, ok, err)
		}
	}
}

// TestNamesStayInside checks the purpose of the rules on any text: what passes lies inside the folder it is joined to.
func TestNamesStayInside(t *testing.T) {
	root := filepath.FromSlash("/cache/snapshots/c")
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a./\\-]{0,12}`)).Draw(t, "name")
		if checkFileName(name) != nil {
			return
		}
		joined := filepath.Join(root, name)
		rel, err := filepath.Rel(root, joined)
		if err != nil || rel != name || !strings.HasPrefix(joined, root+"/") || strings.HasPrefix(rel, "..") {
			t.Fatalf("%q leads to %s", name, joined)
		}
	})
}

package dataset

import (
	"slices"
	"strings"
	"testing"
)

func TestPrompts(t *testing.T) {
	for _, words := range []int{1, 5, 32, 500} {
		prompts, err := Prompts(200, words, 42, Measured)
		if err != nil {
			t.Fatal(err)
		}
		warm, _ := Prompts(200, words, 42, WarmUp)
		other, _ := Prompts(200, words, 43, Measured)
		seen := map[string]bool{}
		for _, p := range slices.Concat(prompts, warm, other) {
			if got := len(strings.Fields(p)); got != words {
				t.Fatalf("%d words, want %d: %q", got, words, p)
			}
			first := strings.Fields(p)[0]
			if seen[first] {
				t.Errorf("two prompts open with %q", first)
			}
			seen[first] = true
		}
		again, _ := Prompts(100, words, 42, Measured)
		if !slices.Equal(again, prompts[:100]) {
			t.Error("prompts are not determined by seed and index")
		}
	}
}

func TestPromptsRejects(t *testing.T) {
	if _, err := Prompts(1, 0, 1, Measured); err == nil {
		t.Error("0 words: no error")
	}
	if _, err := Prompts(-1, 8, 1, Measured); err == nil {
		t.Error("-1 prompts: no error")
	}
}

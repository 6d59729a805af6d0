package chatparse

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// parts are what texts of the property are put together of.
var parts = strings.Split(`<tool_call>|</tool_call>|<|python_tag||>|[TOOL_CALLS]|[ARGS]|[CALL_ID]|<think>|</think>|{"name": "f", "arguments": {|{"name":"g"|,"parameters":|`+
	`"a": [1, "x"]|"|\|{|}|[|]|,|;|:| |`+"\n"+`|f|é|</|<|0|null`, "|")

// everyOption is each combination of formats.
func everyOption() []Options {
	var list []Options
	for _, tools := range append([]string{"", JSONCalls}, ToolFormats...) {
		for _, reasoning := range append([]string{""}, ReasoningFormats...) {
			for _, flag := range []bool{false, true} {
				list = append(list, Options{Tools: tools, Functions: []string{"f"}, Single: flag, Reasoning: reasoning, Whole: flag})
			}
		}
	}
	return list
}

// TestPieces is the property of the package: how a text is cut makes no
// difference.
func TestPieces(t *testing.T) {
	options := everyOption()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 40).Draw(t, "parts"), "")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 12), 1, 8).Draw(t, "sizes")
		sizeOf := func(i int) int { return sizes[i%len(sizes)] }
		for _, o := range options {
			checkPieces(t, o, text, sizeOf)
		}
	})
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func checkPieces(t failer, o Options, text string, sizeOf func(int) int) {
	t.Helper()
	whole := parse(o, text)
	if diff := cmp.Diff(whole, parse(o, pieces(text, sizeOf)...)); diff != "" {
		t.Fatalf("%+v, %q: %s", o, text, diff)
	}
	for _, c := range whole.Calls {
		if c.Name == "" || c.Arguments == "" {
			t.Fatalf("%+v, %q: call %q", o, text, c)
		}
	}
}

func FuzzParser(f *testing.F) {
	for _, c := range parseCases {
		f.Add(c.text, uint64(len(c.text)))
	}
	options := everyOption()
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if len(text) > 4096 {
			t.Skip("longer than what tells more")
		}
		o := options[seed%uint64(len(options))]
		checkPieces(t, o, text, func(i int) int { return int(seed>>(i%57)&7) + 1 })
	})
}

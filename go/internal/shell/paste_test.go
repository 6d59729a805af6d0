package shell

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPasteFilter(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"typed", "a\tb\r\x1b[A\x03é", "a\tb\r\x1b[A\x03é"},
		{"pasted", pasteBegin + "a\tb\r\nc\nd\re" + pasteEnd + "\r", pasteBegin + "a␉b␤c␤d␤e\r"},
		{"empty lines", pasteBegin + "\r\r\r\n\r\n\n\n" + pasteEnd, pasteBegin + "␤␤␤␤␤␤"},
		{"keys in a paste", pasteBegin + "a\x03b\x1b[Ac\x7f" + pasteEnd, pasteBegin + "ab[Ac"},
		{"almost the end", pasteBegin + "\x1b[201x\x1b\x1b[20" + pasteEnd + "y\t", pasteBegin + "[201x[20y\t"},
		{"two", pasteBegin + "\n" + pasteEnd + "\n" + pasteBegin + "\n" + pasteEnd, pasteBegin + "␤\n" + pasteBegin + "␤"},
		{"text", pasteBegin + "日本é" + pasteEnd, pasteBegin + "日本é"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var f pasteFilter
			if got := string(f.pass(nil, []byte(test.input))); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := withoutPictures("a␉b␤c"); got != "a\tb\nc" {
		t.Errorf("got %q", got)
	}
}

// TestPasteFilterInPieces: what comes out doesn't depend on how the input is cut.
func TestPasteFilterInPieces(t *testing.T) {
	piece := rapid.SampledFrom([]string{pasteBegin, pasteEnd, "\x1b", "[", "2", "0", "1", "~", "\r", "\n", "\t", "a", "é", "\x03"})
	rapid.Check(t, func(t *rapid.T) {
		var whole, cut pasteFilter
		var input, got []byte
		for _, p := range rapid.SliceOf(piece).Draw(t, "input") {
			input = append(input, p...)
		}
		want := whole.pass(nil, input)
		for len(input) > 0 {
			n := rapid.IntRange(1, len(input)).Draw(t, "n")
			got, input = cut.pass(got, input[:n]), input[n:]
		}
		if string(got) != string(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

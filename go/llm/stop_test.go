package llm

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// feed pushes pieces until a stop string is complete.
func feed(t interface{ Fatal(...any) }, stops []string, pieces ...string) (text, stop string) {
	m, err := newStopMatcher(stops)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range pieces {
		out, found := m.push(piece)
		text += out
		if found != "" {
			return text, found
		}
	}
	return text + m.release(), ""
}

func TestStopStrings(t *testing.T) {
	tests := []struct {
		name, stops, pieces string // comma-separated
		text, stop          string
	}{
		{"across tokens", "DEFGHIJ", "ABC,DE,FGH,IJK", "ABC", "DEFGHIJ"},
		{"inside a token", "DE", "ABCDEFG", "ABC", "DE"},
		{"not complete", "DEFGHIJ", "ABC,DEF", "ABCDEF", ""},
		{"fails and starts again", "aab", "a,a,a,b,c", "a", "aab"},
		{"at once", "x", "x,y", "", "x"},
		{"split character", "é!", "caf,é,!,x", "caf", "é!"},
		{"same first byte", "é", "caf,è,é", "cafè", "é"},
		{"first to be complete", "abcX,bc", "abcX", "a", "bc"},
		{"longest of those that end together", "bc,abc", "xabc", "x", "abc"},
		{"none", "", "abc", "abc", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stops []string
			if test.stops != "" {
				stops = strings.Split(test.stops, ",")
			}
			text, stop := feed(t, stops, strings.Split(test.pieces, ",")...)
			if text != test.text || stop != test.stop {
				t.Errorf("got %q stopped by %q, want %q by %q", text, stop, test.text, test.stop)
			}
		})
	}
}

func TestStopHoldsNoMoreThanNeeded(t *testing.T) {
	m, err := newStopMatcher([]string{"END"})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ in, out string }{{"a", "a"}, {"E", ""}, {"N", ""}, {"E", "EN"}, {"x", "Ex"}} {
		if out, _ := m.push(step.in); out != step.out {
			t.Errorf("push(%q) gave %q, want %q", step.in, out, step.out)
		}
	}
}

// However the text is cut, the result is that of a search in the whole.
func TestStopCutsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 1, 4, -1)
		stops := rapid.SliceOfN(word, 1, 3).Draw(t, "stops")
		pieces := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abéè")), 0, 3, -1), 0, 12).Draw(t, "pieces")
		all := strings.Join(pieces, "")
		wantText, wantStop := all, ""
		for end := 1; end <= len(all) && wantStop == ""; end++ {
			for _, s := range stops {
				if strings.HasSuffix(all[:end], s) && len(s) > len(wantStop) {
					wantText, wantStop = all[:end-len(s)], s
				}
			}
		}
		if text, stop := feed(t, stops, pieces...); text != wantText || stop != wantStop {
			t.Fatalf("got %q stopped by %q, want %q by %q", text, stop, wantText, wantStop)
		}
	})
}

func TestStopRefusals(t *testing.T) {
	for _, stops := range [][]string{{""}, {"ok", ""}, make([]string, maxStops+1), {strings.Repeat("x", maxStopLength+1)}} {
		var invalid *InvalidError
		if _, err := newStopMatcher(stops); !errors.As(err, &invalid) || invalid.Field != "stop" {
			t.Errorf("%d strings: got %v", len(stops), err)
		}
	}
}

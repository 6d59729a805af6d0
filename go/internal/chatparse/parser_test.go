package chatparse

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// answer is what events amount to.
type answer struct {
	Reasoning, Content string
	Calls              []call
}

type call struct{ Name, Arguments string }

func (a *answer) add(events []Event) {
	for _, ev := range events {
		switch ev.Kind {
		case Reasoning:
			a.Reasoning += ev.Text
		case Content:
			a.Content += ev.Text
		case CallBegin:
			a.Calls = append(a.Calls, call{Name: ev.Text})
		case Arguments:
			a.Calls[len(a.Calls)-1].Arguments += ev.Text
		}
	}
}

// parse feeds pieces to a parser.
func parse(o Options, pieces ...string) answer {
	p, a := New(o), answer{}
	for _, piece := range pieces {
		a.add(p.Push(piece))
	}
	a.add(p.Close())
	return a
}

type parseCase struct {
	name string
	o    Options
	text string
	want answer
}

func calls(pairs ...string) []call {
	var list []call
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, call{pairs[i], pairs[i+1]})
	}
	return list
}

var (
	qwen    = Options{Tools: "qwen"}
	llama   = Options{Tools: "llama3", Functions: []string{"f", "g"}}
	mistral = Options{Tools: "mistral"}
	list    = Options{Tools: JSONCalls}
	think   = Options{Reasoning: "qwen3"}
	r1      = Options{Reasoning: "deepseek-r1"}
)

func TestParse(t *testing.T) {
	for _, c := range parseCases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parse(c.o, c.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEverySplit cuts each text at every byte, at every pair of bytes unless there
// are too many, and into pieces of each size.
func TestEverySplit(t *testing.T) {
	for _, c := range parseCases {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.text {
				last := len(c.text)
				if last > 100 {
					last = i + 1
				}
				for k := i; k < last; k++ {
					same(t, c, c.text[:i], c.text[i:k], c.text[k:])
				}
			}
			for size := 1; size < len(c.text); size++ {
				same(t, c, pieces(c.text, func(int) int { return size })...)
			}
		})
	}
}

func same(t *testing.T, c parseCase, pieces ...string) {
	t.Helper()
	if diff := cmp.Diff(c.want, parse(c.o, pieces...)); diff != "" {
		t.Fatalf("%q: %s", pieces, diff)
	}
}

// pieces cuts a text; size tells how long piece i is.
func pieces(text string, size func(i int) int) []string {
	var list []string
	for i := 0; text != ""; i++ {
		n := min(max(size(i), 1), len(text))
		list, text = append(list, text[:n]), text[n:]
	}
	return list
}

// TestStreaming: a call's name comes before its arguments do, and these come as
// they are written.
func TestStreaming(t *testing.T) {
	p := New(qwen)
	text := `Hm. <tool_call>{"name": "f", "arguments": {"a": [1, "</b>"], "c": 2}}</tool_call>`
	type output struct {
		upTo   string
		events []Event
	}
	var got []output
	for i := range text {
		if events := p.Push(text[i : i+1]); events != nil {
			got = append(got, output{text[:i+1], events})
		}
	}
	arguments := `{"a": [1, "</b>"], "c": 2}`
	begin := strings.Index(text, arguments)
	if diff := cmp.Diff(Event{Content, "Hm."}, Event{Content, got[0].events[0].Text + got[1].events[0].Text + got[2].events[0].Text}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Event{{CallBegin, "f"}, {Arguments, "{"}}, got[3].events); diff != "" || len(got[3].upTo) != begin+1 {
		t.Errorf("at %q: %s", got[3].upTo, diff)
	}
	for _, out := range got[4:] {
		if len(out.events) != 1 || out.events[0].Kind != Arguments {
			t.Errorf("at %q: %v", out.upTo, out.events)
		}
	}
	// Only the two bytes that might be of the mark wait for the third.
	if n := len(got) - 4; n != len(arguments)-1-2 {
		t.Errorf("%d pieces of arguments of %d bytes", n, len(arguments))
	}
}

func TestReasoningInOnePiece(t *testing.T) {
	for _, text := range []string{"<think>a b\n</think>\n\nc d", "<think>a b"} {
		p := New(Options{Reasoning: "qwen3", Whole: true})
		var thoughts []string
		for _, events := range [][]Event{p.Push(text[:9]), p.Push(text[9:10]), p.Push(text[10:]), p.Close()} {
			for _, ev := range events {
				if ev.Kind == Reasoning {
					thoughts = append(thoughts, ev.Text)
				}
			}
		}
		if diff := cmp.Diff([]string{"a b"}, thoughts); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestThinking(t *testing.T) {
	for _, c := range []struct {
		o    Options
		text string
		want bool
	}{
		{think, "", false}, {think, "<think>", true}, {think, "<think>\n\nx", true}, {think, "<think>x</think>", false}, {think, "x", false},
		{r1, "", true}, {r1, "x", true}, {r1, "x</think>", false},
		{Options{Reasoning: "qwen3", Prompt: "…<think>\n"}, "", true},
		{Options{Reasoning: "deepseek-r1", Prompt: "…</think>"}, "", false},
		{Options{}, "<think>", false},
	} {
		p := New(c.o)
		p.Push(c.text)
		if p.Thinking() != c.want {
			t.Errorf("%+v, %q: Thinking() = %v", c.o, c.text, !c.want)
		}
	}
}

func TestFormatNames(t *testing.T) {
	for _, err := range []error{CheckToolFormat("qwen"), CheckToolFormat(""), CheckReasoningFormat("qwen3"), CheckReasoningFormat(""), CheckReasoningFormat("auto")} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := CheckToolFormat("json"); err == nil || err.Error() != `must be auto, qwen, hermes, llama3, mistral, got "json"` {
		t.Error(err)
	}
	if err := CheckReasoningFormat("r1"); err == nil || err.Error() != `must be auto, qwen3, deepseek-r1, got "r1"` {
		t.Error(err)
	}
}

package shell

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/minisgl/minisgl/go/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeModel answers with the last message in capitals, a letter a token. "stop"
// is answered until the context ends, "fail" with an error.
type fakeModel struct {
	seen    [][]Message
	params  []llm.SamplingParams
	started func() // a token of "stop" has come
}

func (m *fakeModel) Answer(ctx context.Context, conversation []Message, params llm.SamplingParams, emit func(Piece)) (int, error) {
	m.seen = append(m.seen, append([]Message{}, conversation...))
	m.params = append(m.params, params)
	text := conversation[len(conversation)-1].Content
	switch text {
	case "think":
		emit(Piece{Text: "hm", Reasoning: true})
		emit(Piece{Text: "so"})
		return 2, nil
	case "fail":
		return 0, errors.New("the model is tired")
	case "stop":
		emit(Piece{Text: "S"})
		m.started()
		<-ctx.Done()
		return 1, ctx.Err()
	}
	for _, letter := range strings.ToUpper(text) {
		emit(Piece{Text: string(letter)})
	}
	return len(text), nil
}

func define(flags *pflag.FlagSet, p *llm.SamplingParams) {
	flags.Float64Var(&p.Temperature, "temperature", p.Temperature, "how bold")
	flags.IntVar(&p.MaxTokens, "max-tokens", p.MaxTokens, "how long")
}

// talk holds a conversation over a pipe.
func talk(t *testing.T, m *fakeModel, input string, change ...func(*Options)) (out, notes string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var answers, figures bytes.Buffer
	o := Options{
		Model: m, Params: llm.DefaultSampling(), DefineParams: define, Title: "a title",
		Lines: NewLines(ctx, strings.NewReader(input)), Out: &answers, Notes: &figures,
	}
	for _, f := range change {
		f(&o)
	}
	err = Run(ctx, o)
	return answers.String(), figures.String(), err
}

func inTerminal(o *Options) { o.Terminal = true }

func TestConversation(t *testing.T) {
	m := &fakeModel{}
	out, notes, err := talk(t, m, "hi\n\n  \nmore\n/reset\nagain", func(o *Options) { o.System = "be brief" })
	if err != nil || out != "HI\nMORE\nAGAIN\n" {
		t.Errorf("%v, %q", err, out)
	}
	if strings.Count(notes, "TTFT") != 3 || !strings.Contains(notes, ", 2 tokens]\n") {
		t.Errorf("figures %q", notes)
	}
	system := Message{"system", "be brief"}
	want := [][]Message{
		{system, {"user", "hi"}},
		{system, {"user", "hi"}, {"assistant", "HI"}, {"user", "more"}},
		{system, {"user", "again"}},
	}
	if diff := cmp.Diff(want, m.seen); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesOfSeveralLines(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"quotes", "\"\"\"\none\n\ttwo\n\"\"\"\n", "one\n\ttwo"},
		{"quotes on the lines", "\"\"\"one\ntwo\"\"\"  \n", "one\ntwo"},
		{"quotes on one line", "\"\"\"/one\"\"\"\n", "/one"},
		{"a command in quotes", "\"\"\"\n/exit\n\"\"\"\n", "/exit"},
		{"quotes that do not end", "\"\"\"one\ntwo\n", "one\ntwo"},
		{"only the quotes at the end count", "\"\"\"a \"\"\" b\nc\"\"\"", "a \"\"\" b\nc"},
		{"backslash", "one\\\ntwo\\\nthree\n", "one\ntwo\nthree"},
		{"backslash at the end", "one\\\n", "one"},
		{"backslash inside", "a\\b\n", "a\\b"},
		{"CRLF", "one\r\n", "one"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := &fakeModel{}
			if _, _, err := talk(t, m, test.input); err != nil || len(m.seen) != 1 {
				t.Fatalf("%v, %d messages", err, len(m.seen))
			}
			if got := m.seen[0][0].Content; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestFailedAnswers(t *testing.T) {
	m := &fakeModel{}
	if out, _, err := talk(t, m, "fail\nhi\n"); err == nil || out != "" {
		t.Errorf("over a pipe: %v, %q", err, out)
	}
	m = &fakeModel{}
	out, notes, err := talk(t, m, "fail\nhi\n", inTerminal)
	if err != nil || !strings.Contains(out, "HI\n") || !strings.Contains(notes, "error: the model is tired\n") {
		t.Errorf("in a terminal: %v, %q, %q", err, out, notes)
	}
	if diff := cmp.Diff([]Message{{"user", "hi"}}, m.seen[1]); diff != "" {
		t.Errorf("the question that failed stayed: %s", diff)
	}
}

func TestInterruptStopsAnAnswer(t *testing.T) {
	interrupts := make(chan os.Signal, 1)
	m := &fakeModel{started: func() { interrupts <- os.Interrupt }}
	out, notes, err := talk(t, m, "stop\nhi\n", func(o *Options) { o.Interrupts = interrupts })
	if err != nil || out != "S\nHI\n" || !strings.Contains(notes, "[stopped, TTFT ") {
		t.Errorf("%v, %q, %q", err, out, notes)
	}
	if diff := cmp.Diff([]Message{{"user", "stop"}, {"assistant", "S"}, {"user", "hi"}}, m.seen[1]); diff != "" {
		t.Error(diff)
	}
}

func TestContextEndsAnAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Model: &fakeModel{started: cancel}, Lines: NewLines(ctx, strings.NewReader("stop\nhi\n")), Out: io.Discard, Notes: io.Discard, Terminal: true}
	if err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// interruptedLines are Ctrl-C where a line is "^C".
type interruptedLines []string

func (l *interruptedLines) ReadLine(context.Context, string) (string, error) {
	if len(*l) == 0 {
		return "", io.EOF
	}
	line := (*l)[0]
	*l = (*l)[1:]
	if line == "^C" {
		return "", ErrInterrupted
	}
	return line, nil
}

func TestInterruptsAtThePrompt(t *testing.T) {
	lines := &interruptedLines{"^C", "hi", "^C", "^C", "not read"}
	m := &fakeModel{}
	_, notes, err := talk(t, m, "", func(o *Options) { o.Lines = lines })
	if err != nil || len(m.seen) != 1 || len(*lines) != 1 || strings.Count(notes, leaving) != 2 {
		t.Errorf("%v, %d answers, left %v, %q", err, len(m.seen), *lines, notes)
	}
	lines = &interruptedLines{`"""`, "a", "^C", "hi"}
	m = &fakeModel{}
	if _, _, err := talk(t, m, "", func(o *Options) { o.Lines = lines }); err != nil || m.seen[0][0].Content != "hi" {
		t.Errorf("an unfinished message: %v, %v", err, m.seen)
	}
}

func TestAnswersDoNotCommandTheTerminal(t *testing.T) {
	const evil = "a\x1b]0;x\x07\tb\u009bc\n"
	if out, _, _ := talk(t, &fakeModel{}, evil, inTerminal); !strings.Contains(out, "A]0;X\tBC\n") {
		t.Errorf("in a terminal: %q", out)
	}
	if out, _, _ := talk(t, &fakeModel{}, evil); out != "A\x1b]0;X\x07\tB\u009bC\n" {
		t.Errorf("over a pipe: %q", out)
	}
}

func TestReasoningIsNoPartOfTheConversation(t *testing.T) {
	m := &fakeModel{}
	out, _, err := talk(t, m, "think\nhi\n", inTerminal)
	if err != nil || !strings.Contains(out, "\x1b[2mhm\x1b[0m\n\nso\n") {
		t.Errorf("in a terminal: %v, %q", err, out)
	}
	if diff := cmp.Diff([]Message{{"user", "think"}, {"assistant", "so"}, {"user", "hi"}}, m.seen[1]); diff != "" {
		t.Error(diff)
	}
	if out, _, _ := talk(t, &fakeModel{}, "think\n"); out != "so\n" {
		t.Errorf("over a pipe: %q", out)
	}
}

func TestParams(t *testing.T) {
	tests := []struct {
		name, input, says string
		temperature       float64
		maxTokens         int
	}{
		{"shown", "/params", "  temperature          0       how bold\n  max_tokens           1024    how long\n", 0, 1024},
		{"set", "/params temperature=0.5 max_tokens=7", "", 0.5, 7},
		{"set with dashes and a space", "/params max-tokens 8", "", 0, 8},
		{"shown when set", "/params temperature 1\n/params", "temperature          1 ", 1, 1024},
		{"unknown", "/params max_tokens=7 heat=1", `/params: there is no parameter "heat"; /params shows all`, 0, 1024},
		{"no number", "/params max_tokens=7 temperature=warm", `/params: temperature can't be "warm"`, 0, 1024},
		{"out of range", "/params max_tokens=7 temperature=-1", "/params: temperature: must be a finite number >= 0, got -1", 0, 1024},
		{"no value", "/params temperature", "/params: say its value: /params temperature=VALUE", 0, 1024},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := &fakeModel{}
			out, _, err := talk(t, m, test.input+"\nhi\n")
			if err != nil || !strings.Contains(out, test.says) {
				t.Errorf("%v, %q", err, out)
			}
			if p := m.params[0]; p.Temperature != test.temperature || p.MaxTokens != test.maxTokens {
				t.Errorf("sampled with %+v", p)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	out, _, err := talk(t, &fakeModel{}, "/help\n/nothing at all\n/reset now\n/save\n/exit\nnot read\n")
	if err != nil || strings.Contains(out, "NOT READ") {
		t.Errorf("%v, %q", err, out)
	}
	for _, want := range []string{
		"/params [NAME=VALUE ...]", "There is no command /nothing. /help shows", `/reset: takes nothing, got "now"`, "/save: say which: /save FILE",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
	if diff := cmp.Diff([]string{"/reset"}, completeCommand("/re")); diff != "" {
		t.Error(diff)
	}
	if got := completeCommand("re"); got != nil {
		t.Errorf("a message is completed: %v", got)
	}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a talk.json")
	system := func(o *Options) { o.System = "s" }
	if out, _, err := talk(t, &fakeModel{}, "hi\n/save "+path+"\nmore\n/save "+path+"\n", system); err != nil || !strings.Contains(out, "5 messages are in "+path) {
		t.Fatalf("%v, %q", err, out)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", err, info)
	}
	m := &fakeModel{}
	if _, _, err := talk(t, m, "/load "+path+"\nand?\n"); err != nil {
		t.Fatal(err)
	}
	want := []Message{{"system", "s"}, {"user", "hi"}, {"assistant", "HI"}, {"user", "more"}, {"assistant", "MORE"}, {"user", "and?"}}
	if diff := cmp.Diff(want, m.seen[0]); diff != "" {
		t.Error(diff)
	}
}

func TestSaveAndLoadRefuse(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	diary := file("diary.txt", "dear diary")
	tests := []struct{ input, want string }{
		{"/load " + filepath.Join(dir, "nowhere"), "no such file"},
		{"/load " + dir, "is no file of at most"},
		{"/load " + diary, "must hold a JSON list"},
		{"/load " + file("role.json", `[{"role": "king", "content": "x"}]`), `the role of message 0 must be system, user or assistant, got "king"`},
		{"/load " + file("content.json", `[{"role": "user", "content": [1]}]`), "must hold a JSON list"},
		{"/save " + diary, "holds no conversation, so it is kept"},
		{"/save " + filepath.Join(dir, "no", "folder"), "no such file"},
	}
	for _, test := range tests {
		m := &fakeModel{}
		out, _, err := talk(t, m, "before\n"+test.input+"\nhi\n")
		if err != nil || !strings.Contains(out, test.want) {
			t.Errorf("%s: %v, %q", test.input, err, out)
		}
		if len(m.seen) != 2 || len(m.seen[1]) != 3 {
			t.Errorf("%s: the conversation is another one: %v", test.input, m.seen)
		}
	}
	if data, err := os.ReadFile(diary); err != nil || string(data) != "dear diary" {
		t.Errorf("%v, the diary says %q", err, data)
	}
}

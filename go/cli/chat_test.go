package cli

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/minisgl/minisgl/go/internal/server"
	"github.com/minisgl/minisgl/go/tokenizer"
)

func TestChatInATerminal(t *testing.T) {
	state := t.TempDir()
	c := inTerminal(t, "chat --model M", "XDG_STATE_HOME="+state)
	c.expect("M on fake. /help shows the commands.")
	c.expect("$ ")
	c.press("hello\r")
	c.expect("<HELLO>")
	c.expect("[TTFT ")
	c.expect("7 tokens]")
	c.expect("$ ")

	c.press("helo\x1b[Dl\r") // left, then a letter in between
	c.expect("<HELLO>")
	c.press("\x1b[A\x1b[A!\r") // the line before the last one
	c.expect("<HELLO!>")
	c.press("日本語\x7f!\r")
	c.expect("<日本!>")
	c.press("/par\t max_tokens=5\r/params\r")
	c.expect("max_tokens           5 ")
	c.press("\"\"\"\rone\rtwo\"\"\"\r")
	c.expect(". ")
	c.expect("<ONE\r\nTWO>")
	c.press("\x1b[200~three\rfour\t\r\x1b[201~")
	c.expect("three␤four␉␤")
	c.press("\r")
	c.expect("<THREE\r\nFOUR>")

	c.expect("$ ")
	c.press("\x03")
	c.expect(leavingHint)
	c.expect("$ ")
	c.press("half a line\x03")
	if code := c.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	history, err := os.ReadFile(filepath.Join(state, "minisgl", "shell_history"))
	want := "hello\nhello\nhello!\n日本!\n/params max_tokens=5\n/params\n\"\"\"\none\ntwo\"\"\"\nthree␤four␉␤\n"
	if diff := cmp.Diff(want, string(history)); diff != "" || err != nil {
		t.Error(err, diff)
	}

	c = inTerminal(t, "serve --shell --model M", "XDG_STATE_HOME="+state)
	c.expect("$ ")
	c.press("\x1b[A\r") // from the file
	c.expect("<THREE\r\nFOUR>")
	c.press("\x04")
	if code := c.exit(); code != 0 {
		t.Errorf("exit code %d after Ctrl-D", code)
	}
}

const leavingHint = "Ctrl-C once more, Ctrl-D or /exit leaves."

func TestCtrlCStopsAnAnswer(t *testing.T) {
	for _, kind := range []string{"xterm", "dumb"} {
		t.Run(kind, func(t *testing.T) {
			c := inTerminal(t, "chat", "XDG_STATE_HOME="+t.TempDir(), "TERM="+kind)
			c.expect("$ ")
			c.press("endless\r")
			c.expect("<ENDLESS>>>>")
			c.press("\x03")
			c.expect("[stopped, TTFT ")
			c.expect("$ ")
			c.press("hi\r")
			c.expect("<HI>")
			c.expect("$ ")
			c.press("\x03")
			c.expect(leavingHint)
			c.expect("$ ")
			c.press("more\r")
			c.expect("<MORE>")
			c.expect("$ ")
			c.press("/exit\r")
			if code := c.exit(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestChatGivesTheTerminalBack(t *testing.T) {
	c := inTerminal(t, "version")
	before := c.mode()
	for name, leave := range map[string]func(c *terminal){
		"exit":    func(c *terminal) { c.press("/exit\r") },
		"SIGTERM": func(c *terminal) { _ = c.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		c := inTerminal(t, "chat", "XDG_STATE_HOME="+t.TempDir())
		c.expect("$ ")
		if c.mode() == before {
			t.Errorf("%s: the mode is as before, so this test tells nothing", name)
		}
		leave(c)
		c.exit()
		if c.mode() != before {
			t.Errorf("%s: the terminal's mode is another one than before", name)
		}
	}
}

func TestChatVariables(t *testing.T) {
	t.Setenv("MINISGL_SHELL_MAX_TOKENS", "7")
	t.Setenv("MINISGL_SHELL_TOP_P", "0.5")
	t.Setenv("MINISGL_TOP_P", "0.25")
	t.Setenv("MINISGL_TOP_K", "3")
	tests := []struct {
		args      string
		maxTokens int
		topK      int
	}{
		{"chat", 7, 3}, {"chat --max-tokens 8", 8, 3}, {"serve --shell-mode", 7, -1},
	}
	for _, test := range tests {
		f := &fakeEngines{}
		if code, _, stderr := call(t, t.Context(), f, "hi\n", strings.Fields(test.args)...); code != 0 {
			t.Fatalf("%s: exit code %d: %s", test.args, code, stderr)
		}
		if p := f.params[0]; p.MaxTokens != test.maxTokens || p.TopP != 0.5 || p.TopK != test.topK || p.Temperature != 0.6 {
			t.Errorf("%s: %+v", test.args, p)
		}
	}
	t.Setenv("MINISGL_SHELL_TOP_K", "few")
	for _, args := range [][]string{{"chat"}, {"serve", "--shell"}} {
		code, _, stderr := call(t, t.Context(), &fakeEngines{}, "hi\n", args...)
		if code != exitUsage || !strings.Contains(stderr, `MINISGL_SHELL_TOP_K can't be "few"`) {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}

// startServer starts our server with a fake engine and the key "secret".
func startServer(t *testing.T, f *fakeEngines, port int) (url string, stop func()) {
	t.Helper()
	s := server.New(server.Config{APIKey: "secret", ModelName: "M", Logger: slog.New(slog.DiscardHandler)})
	l, err := server.Listen(t.Context(), "127.0.0.1", port)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Run(ctx, l, func(ctx context.Context) (server.Engine, error) { return f.New(ctx, f.config) })
	}()
	url = "http://" + l.Addr().String()
	for status := 0; status != http.StatusOK; { // until the model is loaded
		resp, err := http.Get(url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		status = resp.StatusCode
		_ = resp.Body.Close()
	}
	return url, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

func TestChatWithAServer(t *testing.T) {
	f := &fakeEngines{}
	url, stop := startServer(t, f, 0)
	defer stop()
	for _, args := range [][]string{
		{"chat", "--url", url, "--api-key", "secret", "--system", "s", "--top-k", "4", "--max-tokens", "9"},
		{"chat", "--url", url + "/v1/", "--api-key", "secret", "--model", "M", "--system", "s", "--top-k", "4", "--max-tokens", "9"},
	} {
		f.chats = nil
		code, stdout, stderr := call(t, t.Context(), &fakeEngines{}, "ab\nc\n", args...)
		if code != 0 || stdout != "<AB>\n<C>\n" || !strings.Contains(stderr, ", 4 tokens]") {
			t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
		}
		want := []tokenizer.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "ab"}, {Role: "assistant", Content: "<AB>"}, {Role: "user", Content: "c"}}
		if diff := cmp.Diff(want, f.chats[1], cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		if p := f.params[len(f.params)-1]; p.Temperature != 0.6 || p.TopK != 4 || p.MaxTokens != 9 {
			t.Errorf("%+v", p)
		}
	}
	code, _, stderr := call(t, t.Context(), &fakeEngines{}, "ab\n", "chat", "--url", url, "--api-key", "wrong")
	if code != exitFailure || !strings.Contains(stderr, "the server answered 401 Unauthorized: ") {
		t.Errorf("a wrong key: exit code %d, %q", code, stderr)
	}
}

func TestChatWithABadServer(t *testing.T) {
	answer := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = w.Write([]byte(`{"data": [{"id": "m"}]}`))
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	tests := []struct{ answer, want string }{
		{"", "the server's answer broke off"},
		{`data: {"choices": [{"delta": {"content": "a"}}]}` + "\n\n", "the server's answer broke off"},
		{"data: x\n\n", "an event that is no JSON"},
		{`data: {"error": {"message": "overloaded"}}` + "\n\n", "overloaded"},
	}
	for _, test := range tests {
		answer = test.answer
		code, _, stderr := call(t, t.Context(), &fakeEngines{}, "ab\n", "chat", "--url", s.URL)
		if code != exitFailure || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: exit code %d, %q", test.answer, code, stderr)
		}
	}
	answer = `data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}` + "\n\n" +
		`data: {"choices": [{"delta": {"reasoning_content": "hm"}}]}` + "\n\n" + `data: {"choices": [{"delta": {"content": "so"}}]}` + "\n\ndata: [DONE]\n\n"
	if code, stdout, stderr := call(t, t.Context(), &fakeEngines{}, "ab\n", "chat", "--url", s.URL); code != 0 || stdout != "so\n" || !strings.Contains(stderr, ", 2 tokens]") {
		t.Errorf("reasoning and no usage: exit code %d, %q, %q", code, stdout, stderr)
	}
	for _, url := range []string{"localhost:1919", "ftp://x", "http://", ":"} {
		code, _, stderr := call(t, t.Context(), &fakeEngines{}, "ab\n", "chat", "--url", url)
		if code == 0 || !strings.Contains(stderr, "must be like http://127.0.0.1:1919") {
			t.Errorf("%s: exit code %d, %q", url, code, stderr)
		}
	}
	if code, _, stderr := call(t, t.Context(), &fakeEngines{}, "", "chat", "--dummy-weight"); code != exitUsage || !strings.Contains(stderr, "nothing to say") {
		t.Errorf("--dummy-weight: exit code %d, %q", code, stderr)
	}
}

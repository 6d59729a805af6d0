package cli

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

func TestTopOnce(t *testing.T) {
	server, stop := startServer(t, &fakeEngines{}, 0)
	defer stop()
	code, stdout, stderr := call(t, t.Context(), &fakeEngines{}, "", "top", "--url", server, "--api-key", "secret", "--once")
	if code != 0 || !strings.HasPrefix(stdout, "M  fake, ") || !strings.Contains(stdout, "0 started, 0 finished") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = call(t, t.Context(), &fakeEngines{}, "", "top", "--url", server, "--api-key", "secret", "--once", "--json")
	var stats struct{ Type, Status string }
	if err := json.Unmarshal([]byte(stdout), &stats); code != 0 || err != nil || stats.Type != "stats" || stats.Status != "ok" {
		t.Errorf("exit code %d, %v, %q", code, err, stdout)
	}
	tests := []struct {
		args string
		code int
		want string
	}{
		{"--once --api-key wrong --url " + server, exitFailure, " answered 401 Unauthorized: "},
		{"--json --api-key wrong --url " + server, exitFailure, " answered 401 Unauthorized: "},
		{"--once --url http://127.0.0.1:1", exitFailure, "no server at http://127.0.0.1:1: "},
		{"--once --url server:1", exitUsage, "must be like http://127.0.0.1:1919"},
		{"--url " + server, exitUsage, "this is no terminal; give --once"},
	}
	for _, test := range tests {
		code, _, stderr := call(t, t.Context(), &fakeEngines{}, "", append([]string{"top"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, %q", test.args, code, stderr)
		}
	}
}

func TestTopInATerminal(t *testing.T) {
	mode := inTerminal(t, "version").mode()
	server, stop := startServer(t, &fakeEngines{}, 0)
	c := inTerminal(t, "top --api-key secret --url "+server)
	c.expect("\x1b[?1049h")
	c.expect("M  fake, ")
	c.expect("running  ")
	c.expect("q quits")
	stop()
	c.expect("the server has closed the connection")
	c.expect("no server at " + server)
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	_, stop = startServer(t, &fakeEngines{}, port)
	defer stop()
	c.expect("M  fake, ")
	c.expect("up 1s  ok") // it goes on
	c.press("xq")
	c.expect("\x1b[?1049l")
	if code := c.exit(); code != 0 || c.mode() != mode {
		t.Errorf("exit code %d; the terminal's mode is as before: %t", code, c.mode() == mode)
	}

	c = inTerminal(t, "top --url http://127.0.0.1:1")
	c.expect("no server at http://127.0.0.1:1")
	c.press("\x03")
	if code := c.exit(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}

package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// dial opens a WebSocket that the test's end closes.
func dial(t *testing.T, url, path string, header ...string) *websocket.Conn {
	t.Helper()
	conn, resp, err := tryDial(url, path, header...)
	if err != nil {
		t.Fatalf("%v: %v", err, resp)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func tryDial(url, path string, header ...string) (*websocket.Conn, *http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	d := websocket.Dialer{}
	return d.Dial("ws"+strings.TrimPrefix(url, "http")+path, h)
}

func command(t *testing.T, conn *websocket.Conn, format string, args ...any) {
	t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		t.Fatal(err)
	}
}

func startChat(t *testing.T, conn *websocket.Conn, id string) {
	t.Helper()
	command(t, conn, `{"v":1,"type":"start","id":%q,"request":{%s}}`, id, hi)
}

func nextEvent(t *testing.T, conn *websocket.Conn) openai.SocketEvent {
	t.Helper()
	var ev openai.SocketEvent
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if err := conn.ReadJSON(&ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

// untilEnd returns the rest of a request's events.
func untilEnd(t *testing.T, conn *websocket.Conn) []openai.SocketEvent {
	t.Helper()
	var events []openai.SocketEvent
	for {
		ev := nextEvent(t, conn)
		events = append(events, ev)
		if ev.Type != openai.SocketStart && ev.Type != openai.SocketToken {
			return events
		}
	}
}

// closeCode reads to the end of a connection.
func closeCode(t *testing.T, conn *websocket.Conn) int {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			var end *websocket.CloseError
			if !errors.As(err, &end) {
				t.Fatalf("the connection broke: %v", err)
			}
			return end.Code
		}
	}
}

// times of a message, which tests can't know.
var times = regexp.MustCompile(`("created"|"ttft_ms"|"e2e_ms"):[0-9.e-]+`)

func TestSocketEvents(t *testing.T) {
	const head = `"id":"chatcmpl-0","object":"chat.completion.chunk","created":0,"model":"org/fake"`
	const usage = `"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}`
	tests := []struct {
		api, request string
		want         []string
	}{
		{"chat", hi, []string{
			`{"v":1,"type":"start","id":"a","seq":0,"request_id":"chatcmpl-0","model":"org/fake"}`,
			`{"v":1,"type":"token","id":"a","seq":1,"chunk":{` + head + `,"choices":[{"index":0,"delta":{"role":"assistant","content":"<a>"},"finish_reason":null}]}}`,
			`{"v":1,"type":"token","id":"a","seq":2,"chunk":{` + head + `,"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":null}]}}`,
			`{"v":1,"type":"token","id":"a","seq":3,"chunk":{` + head + `,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}}`,
			`{"v":1,"type":"finish","id":"a","seq":4,"finish_reason":"stop",` + usage + `,"ttft_ms":0,"e2e_ms":0}`,
		}},
		{"completions", `"prompt":"x","model":"m"`, []string{
			`{"v":1,"type":"start","id":"a","seq":0,"request_id":"cmpl-0","model":"m"}`,
			`{"v":1,"type":"token","id":"a","seq":1,"chunk":{"id":"cmpl-0","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"<a>","logprobs":null,"finish_reason":null}]}}`,
			`{"v":1,"type":"token","id":"a","seq":2,"chunk":{"id":"cmpl-0","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"b","logprobs":null,"finish_reason":null}]}}`,
			`{"v":1,"type":"token","id":"a","seq":3,"chunk":{"id":"cmpl-0","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}}`,
			`{"v":1,"type":"finish","id":"a","seq":4,"finish_reason":"stop",` + usage + `,"ttft_ms":0,"e2e_ms":0}`,
		}},
		{"generate", `"prompt":"x","max_tokens":2`, []string{
			`{"v":1,"type":"start","id":"a","seq":0,"request_id":"0","model":"org/fake"}`,
			`{"v":1,"type":"token","id":"a","seq":1,"chunk":"<a>"}`,
			`{"v":1,"type":"token","id":"a","seq":2,"chunk":"b"}`,
			`{"v":1,"type":"finish","id":"a","seq":3,"finish_reason":"stop",` + usage + `,"ttft_ms":0,"e2e_ms":0}`,
		}},
	}
	for _, test := range tests {
		url, _ := listen(t, newServer(t, newFake(token("<a>", 1), token("b", 2), atEOS(2)), Config{}))
		conn := dial(t, url, "/ws/generate")
		command(t, conn, `{"v":1,"type":"start","id":"a","api":%q,"request":{%s}}`, test.api, test.request)
		for i, want := range test.want {
			_, got, err := conn.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, times.ReplaceAllString(string(got), "$1:0")); diff != "" {
				t.Errorf("%s, event %d (-want +got):\n%s", test.api, i, diff)
			}
		}
	}
}

func TestSocketManyRequests(t *testing.T) {
	const requests, tokens = 200, 20
	var script []llm.Event
	for i := range tokens {
		script = append(script, token(fmt.Sprint(i, " "), i+1))
	}
	e := newFake(append(script, atEOS(tokens))...)
	url, _ := listen(t, newServer(t, e, Config{}))
	conn := dial(t, url, "/ws/generate")
	for i := range requests {
		command(t, conn, `{"type":"start","id":"%d","request":{"n":2,%s}}`, i, hi)
	}
	seen, tokensOf, ended := map[string]int{}, map[string]int{}, 0
	for ended < requests {
		ev := nextEvent(t, conn)
		if ev.Seq != seen[ev.ID] {
			t.Fatalf("request %s: event %d after %d", ev.ID, ev.Seq, seen[ev.ID]-1)
		}
		seen[ev.ID]++
		if ev.Type == openai.SocketToken {
			tokensOf[ev.ID]++
		}
		if ev.Type != openai.SocketFinish {
			continue
		}
		if ended++; tokensOf[ev.ID] != 2*(tokens+1) || ev.Usage.CompletionTokens != 2*tokens {
			t.Errorf("request %s ended after %d chunks, with %+v", ev.ID, tokensOf[ev.ID], ev.Usage)
		}
	}
	eventually(t, "nothing runs", func() bool { return e.live.Load() == 0 })
}

func TestSocketAbort(t *testing.T) {
	for _, n := range []int32{1, 2} { // choices
		e := steppedFake()
		url, _ := listen(t, newServer(t, e, Config{}))
		conn := dial(t, url, "/ws/generate")
		command(t, conn, `{"type":"abort","id":"nobody"}`)
		for round := range int32(2) { // the id may be used again
			command(t, conn, `{"type":"start","id":"a","request":{"n":%d,%s}}`, n, hi)
			if ev := nextEvent(t, conn); ev.Type != openai.SocketStart {
				t.Fatalf("got %+v", ev)
			}
			e.step <- struct{}{}
			if ev := nextEvent(t, conn); ev.Type != openai.SocketToken {
				t.Fatalf("got %+v", ev)
			}
			command(t, conn, `{"type":"abort","id":"a"}`)
			events := untilEnd(t, conn)
			last := events[len(events)-1]
			if last.Type != openai.SocketFinish || last.FinishReason != "abort" || last.Usage.CompletionTokens != 1 || last.Seq != 2+int(n) {
				t.Errorf("n %d, round %d: got %+v", n, round, events)
			}
			eventually(t, "aborted", func() bool { return e.aborted.Load() == n*(round+1) && e.live.Load() == 0 })
		}
	}
}

func TestSocketRejects(t *testing.T) {
	e := steppedFake()
	url, _ := listen(t, newServer(t, e, Config{StrictModel: true}))
	conn := dial(t, url, "/ws/generate")
	startChat(t, conn, "taken")
	nextEvent(t, conn)
	tests := []struct {
		command, id string
		status      int
		message     string
	}{
		{`{`, "", 400, "not valid JSON"},
		{`[]`, "", 400, "must be a JSON object"},
		{`{"type":"start","id":"a"}`, "a", 400, "request: is missing"},
		{`{"type":"start","id":"a","request":[]}`, "a", 400, "must be a JSON object"},
		{`{"type":"start","id":"a","request":{}}`, "a", 400, "messages: is missing"},
		{`{"type":"start","id":"a","request":{"max_tokens":0,` + hi + `}}`, "a", 400, "max_tokens: must be at least 1"},
		{`{"type":"start","id":"a","request":{"model":"x",` + hi + `}}`, "a", 404, `no model "x"`},
		{`{"type":"start","id":"a","api":"embed","request":{}}`, "a", 400, `api: must be chat, completions or generate, got "embed"`},
		{`{"type":"start","id":"taken","request":{` + hi + `}}`, "taken", 400, `"taken" runs already`},
		{`{"type":"start","id":"","request":{}}`, "", 400, "id: is missing"},
		{`{"type":"start","id":7,"request":{}}`, "", 400, "id: must be a string"},
		{`{"type":"abort","id":"` + strings.Repeat("x", 129) + `"}`, strings.Repeat("x", 129), 400, "id: has 129 bytes"},
		{`{"type":"go","id":"a"}`, "a", 400, `type: must be start or abort, got "go"`},
		{`{"v":2,"type":"start","id":"a"}`, "a", 400, "v: must be 1"},
	}
	for _, test := range tests {
		command(t, conn, "%s", test.command)
		ev := nextEvent(t, conn)
		if ev.Type != openai.SocketReject || ev.ID != test.id || ev.Status != test.status || !strings.Contains(ev.Error.Message, test.message) {
			t.Errorf("%s: got %+v, %+v", test.command, ev, ev.Error)
		}
	}
	for range 3 {
		e.step <- struct{}{}
	}
	if events := untilEnd(t, conn); events[len(events)-1].FinishReason != "stop" {
		t.Errorf("the request that ran ended with %+v", events)
	}
}

func TestSocketLimits(t *testing.T) {
	e := steppedFake()
	url, _ := listen(t, newServer(t, e, Config{MaxBody: 1000}))
	conn := dial(t, url, "/ws/generate")
	for i := range maxSocketRequests {
		startChat(t, conn, fmt.Sprint(i))
		nextEvent(t, conn)
	}
	startChat(t, conn, "more")
	if ev := nextEvent(t, conn); ev.Type != openai.SocketReject || ev.Status != 429 || ev.Error.Code != openai.CodeTooManyRequests {
		t.Errorf("got %+v", ev)
	}
	command(t, conn, "%s", strings.Repeat(" ", 1001))
	if code := closeCode(t, conn); code != websocket.CloseMessageTooBig {
		t.Errorf("closed with %d", code)
	}
	eventually(t, "all are aborted", func() bool { return e.live.Load() == 0 && e.aborted.Load() == maxSocketRequests })

	conn = dial(t, url, "/ws/generate")
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if code := closeCode(t, conn); code != websocket.CloseUnsupportedData {
		t.Errorf("closed with %d", code)
	}
}

// A client that is gone, that doesn't read, or that doesn't answer pings loses
// its requests.
func TestSocketLost(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	var flood []llm.Event
	for i := range 1000 {
		flood = append(flood, token(long, i+1))
	}
	stepped, flooding, silent := steppedFake(), newFake(flood...), steppedFake()

	url, _ := listen(t, newServer(t, stepped, Config{}))
	conn := dial(t, url, "/ws/generate")
	startChat(t, conn, "a")
	nextEvent(t, conn)
	conn.Close()

	url, _ = listen(t, newServer(t, flooding, Config{WriteTimeout: 100 * time.Millisecond}))
	startChat(t, dial(t, url, "/ws/generate"), "a")

	url, _ = listen(t, newServer(t, silent, Config{ReadTimeout: 100 * time.Millisecond}))
	startChat(t, dial(t, url, "/ws/generate"), "a")

	for _, e := range []*fakeEngine{stepped, flooding, silent} {
		eventually(t, "the request is aborted", func() bool { return e.aborted.Load() == 1 && e.live.Load() == 0 })
	}
}

func TestSocketHandshake(t *testing.T) {
	protocols := func(key string) string {
		return "minisgl.v1, minisgl.key." + base64.RawURLEncoding.EncodeToString([]byte(key))
	}
	const protocol = "Sec-WebSocket-Protocol"
	url, _ := listen(t, newServer(t, newFake(atEOS(0)), Config{APIKey: "sécret/+", CORSOrigin: "https://friend"}))
	tests := []struct {
		header []string
		want   int
	}{
		{nil, 401},
		{[]string{"Authorization", "Bearer wrong"}, 401},
		{[]string{"Authorization", "Bearer sécret/+"}, 101},
		{[]string{protocol, protocols("wrong")}, 401},
		{[]string{protocol, "minisgl.key.!"}, 401},
		{[]string{protocol, protocols("sécret/+")}, 101},
		{[]string{protocol, protocols("sécret/+"), "Origin", url}, 101},
		{[]string{protocol, protocols("sécret/+"), "Origin", "https://friend"}, 101},
		{[]string{protocol, protocols("sécret/+"), "Origin", "https://foe"}, 403},
		{[]string{protocol, protocols("sécret/+"), "Origin", "null"}, 403},
		{[]string{protocol, protocols("sécret/+"), "Origin", "http://%"}, 403},
	}
	for _, test := range tests {
		for _, path := range []string{"/ws/generate", "/ws/stats"} {
			conn, resp, err := tryDial(url, path, test.header...)
			if err == nil {
				conn.Close()
			}
			if resp == nil || resp.StatusCode != test.want {
				t.Errorf("%s %q: got %v, %v, want %d", path, test.header, resp, err, test.want)
			} else if resp.StatusCode == 101 && test.header[0] == protocol && resp.Header.Get(protocol) != openai.SocketProtocol {
				t.Errorf("%q: the answer's protocol is %q", test.header, resp.Header.Get(protocol))
			}
		}
	}
	s := newServer(t, newFake(), Config{CORSOrigin: "*"})
	url, _ = listen(t, s)
	dial(t, url, "/ws/stats", "Origin", "https://anyone")
	if w := do(s, "GET", "/ws/stats", ""); w.Code != 400 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("without an upgrade: %d %s", w.Code, w.Body)
	}
}

func TestSocketShutdown(t *testing.T) {
	for _, drain := range []time.Duration{time.Minute, 10 * time.Millisecond} {
		e := steppedFake()
		r := start(t, newServer(t, nil, Config{DrainTimeout: drain}), loaded(e))
		eventually(t, "ready", func() bool { return r.health(t) == 200 })
		stats, idle, conn := dial(t, r.url, "/ws/stats"), dial(t, r.url, "/ws/generate"), dial(t, r.url, "/ws/generate")
		startChat(t, conn, "a")
		nextEvent(t, conn)
		e.step <- struct{}{}
		nextEvent(t, conn)
		r.stop()
		eventually(t, "health is 503", func() bool { return r.health(t) != 200 })
		if drain == time.Minute {
			if _, resp, _ := tryDial(r.url, "/ws/generate"); resp == nil || resp.StatusCode != 503 {
				t.Errorf("a new connection got %v", resp)
			}
			startChat(t, conn, "b")
			if ev := nextEvent(t, conn); ev.Type != openai.SocketReject || ev.Status != 503 {
				t.Errorf("a new request got %+v", ev)
			}
			e.step <- struct{}{}
			e.step <- struct{}{}
		}
		events := untilEnd(t, conn)
		last := events[len(events)-1]
		if drain == time.Minute && (last.Type != openai.SocketFinish || last.FinishReason != "stop") ||
			drain != time.Minute && (last.Type != openai.SocketError || last.Error.Code != "shutting_down" || last.Seq != 2) {
			t.Errorf("the request ended with %+v, %+v", last, last.Error)
		}
		for _, conn := range []*websocket.Conn{conn, stats, idle} {
			if code := closeCode(t, conn); code != websocket.CloseGoingAway {
				t.Errorf("closed with %d", code)
			}
			conn.Close()
		}
		if err := r.wait(t); err != nil {
			t.Error(err)
		}
	}
}

// TestSocketDialWhileStopping dials while the server stops: who got a
// connection must be told that it ends.
func TestSocketDialWhileStopping(t *testing.T) {
	for range 20 {
		r := start(t, newServer(t, nil, Config{}), loaded(steppedFake()))
		eventually(t, "ready", func() bool { return r.health(t) == 200 })
		var dialed sync.WaitGroup
		for range 8 {
			dialed.Go(func() {
				conn, _, err := tryDial(r.url, "/ws/generate")
				if err != nil {
					return // refused: also an answer
				}
				defer conn.Close()
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
				if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
					t.Errorf("the connection ended with %v", err)
				}
			})
		}
		r.stop()
		dialed.Wait()
		if err := r.wait(t); err != nil {
			t.Error(err)
		}
	}
}

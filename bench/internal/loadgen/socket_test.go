package loadgen

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/record"
)

// Many streams share few connections, and each gets what is its own.
func TestSocketStreams(t *testing.T) {
	const n, tokens = 500, 32
	cfg := mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, PromptTokens: 7}
	measure(t, cfg, load{n: n, maxTokens: tokens, api: ChatSocket}, func(got []record.Record, server *mockserver.Server) {
		if server.PeakInFlight() != n {
			t.Errorf("%d requests at a time, want %d", server.PeakInFlight(), n)
		}
		want := ""
		for i := range tokens {
			want += fmt.Sprintf(" t%d", i)
		}
		for _, r := range got {
			if !r.OK() || r.Text != want || len(r.Tokens) != tokens || r.End()-r.Start != 50*ms+(tokens-1)*5*ms {
				t.Fatalf("request %d: %v %q, text %q, %v", r.Index, r.Kind, r.Err, r.Text, r.End()-r.Start)
			}
		}
	})
}

func TestSocketLimits(t *testing.T) {
	for kind, l := range map[record.Kind]load{
		record.Timeout:   {n: 3, maxTokens: 100, timeout: 200 * ms},
		record.Cancelled: {n: 3, maxTokens: 100, interrupt: 200 * ms},
	} {
		l.api = ChatSocket
		measure(t, mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms}, l, func(got []record.Record, _ *mockserver.Server) {
			for _, r := range got {
				if r.Kind != kind || len(r.Tokens) < 25 || len(r.Tokens) > 32 {
					t.Errorf("ended as %v %q after %d tokens, want %v", r.Kind, r.Err, len(r.Tokens), kind)
				}
			}
		})
	}
	measure(t, mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, StallAfter: 5}, load{n: 2, maxTokens: 9, idle: time.Second, api: ChatSocket}, func(got []record.Record, _ *mockserver.Server) {
		for _, r := range got {
			if r.Kind != record.Timeout || len(r.Tokens) != 5 {
				t.Errorf("ended as %v %q after %d tokens", r.Kind, r.Err, len(r.Tokens))
			}
		}
	})
}

// A message that is lost or doubled fails the request.
func TestSocketSequence(t *testing.T) {
	const token = `{"v":1,"type":"token","id":"1","seq":%d,"chunk":{"choices":[{"delta":{"content":"x"}}]}}`
	for name, seqs := range map[string][]int{"lost": {1, 3}, "doubled": {1, 1}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
			if err != nil {
				return
			}
			defer conn.Close()
			_, _, _ = conn.ReadMessage()
			messages := []string{`{"v":1,"type":"start","id":"1","seq":0}`}
			for _, seq := range seqs {
				messages = append(messages, fmt.Sprintf(token, seq))
			}
			for _, m := range messages {
				_ = conn.WriteMessage(websocket.TextMessage, []byte(m))
			}
			_, _, _ = conn.ReadMessage()
		}))
		client := NewHTTP(HTTPOptions{})
		x := NewTarget(client, ChatSocket, server.URL, Options{}, TextRequests([]string{"a"}, 1)).Exchange(t.Context(), 0)
		if x.Kind != record.BadJSON || !strings.Contains(x.Err, "lost or doubled") {
			t.Errorf("%s: ended as %v %q", name, x.Kind, x.Err)
		}
		client.Close()
		server.Close()
	}
}

func TestSocketRefusedHandshake(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client := NewHTTP(HTTPOptions{})
	defer client.Close()
	x := NewTarget(client, ChatSocket, server.URL, Options{}, TextRequests([]string{"a"}, 1)).Exchange(t.Context(), 0)
	if x.Kind != record.HTTPStatus || x.Status != 404 || !strings.Contains(x.Err, "no WebSocket") {
		t.Errorf("ended as %v %d %q", x.Kind, x.Status, x.Err)
	}
}

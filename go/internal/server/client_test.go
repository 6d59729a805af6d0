package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// post sends a chat request whose answer the test reads, or not.
func post(t *testing.T, ctx context.Context, client *http.Client, url, members string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", url+chatPath, strings.NewReader(`{`+members+hi+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return client.Do(r)
}

func TestDisconnectAborts(t *testing.T) {
	tests := []struct {
		name, members string
		steps         int // events before the client goes
	}{
		{"stream", `"stream":true,`, 2},
		{"stream in queue", `"stream":true,`, 0},
		{"whole", ``, 2},
		{"whole in queue", ``, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := newFake(token("a", 1), token("b", 2), token("c", 3), atEOS(3))
			e.step = make(chan struct{})
			url, client := listen(t, newServer(t, e, Config{}))
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				resp, err := post(t, ctx, client, url, test.members)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			eventually(t, "the request runs", func() bool { return e.live.Load() == 1 })
			for range test.steps {
				e.step <- struct{}{}
			}
			cancel()
			<-answered
			eventually(t, "the request is aborted", func() bool { return e.live.Load() == 0 && e.aborted.Load() == 1 })
		})
	}
}

func TestNormalEndIsNoAbort(t *testing.T) {
	e := newFake(token("a", 1), atEOS(1))
	url, client := listen(t, newServer(t, e, Config{}))
	for _, members := range []string{`"stream":true,`, ``} {
		resp, err := post(t, t.Context(), client, url, members)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		resp.Body.Close()
	}
	eventually(t, "the requests end", func() bool { return e.live.Load() == 0 })
	if n := e.aborted.Load(); n != 0 {
		t.Errorf("%d requests were aborted", n)
	}
}

// A client that doesn't read fills the buffers of the connection; then the
// request must not wait for it for ever.
func TestStuckReaderIsAborted(t *testing.T) {
	var script []llm.Event
	long := strings.Repeat("x", 64<<10)
	for i := range 1000 {
		script = append(script, token(long, i+1))
	}
	e := newFake(script...)
	url, _ := listen(t, newServer(t, e, Config{WriteTimeout: 100 * time.Millisecond}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"stream":true,` + hi + `}`
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	eventually(t, "the request is aborted", func() bool { return e.aborted.Load() == 1 && e.live.Load() == 0 })
}

// The time limits are for a body's arrival and for each write. They must not
// touch a request that waits for the engine, nor the connection's next request.
func TestTimeoutsEndWithTheirPurpose(t *testing.T) {
	const limit = 30 * time.Millisecond
	e := newFake(token("a", 1), token("b", 2), atEOS(2))
	e.step = make(chan struct{})
	url, client := listen(t, newServer(t, e, Config{ReadTimeout: limit, WriteTimeout: limit}))
	for _, members := range []string{`"stream":true,`, ``, `"stream":true,`, ``} {
		go func() {
			for range 3 {
				time.Sleep(2 * limit)
				e.step <- struct{}{}
			}
		}()
		resp, err := post(t, t.Context(), client, url, members)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"finish_reason":"stop"`) {
			t.Errorf("%s: got %d, %v, %s", members, resp.StatusCode, err, body)
		}
	}
}

func TestSlowBodyEnds(t *testing.T) {
	url, _ := listen(t, newServer(t, newFake(atEOS(0)), Config{ReadTimeout: 20 * time.Millisecond}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", chatPath)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	checkFailure(t, resp.StatusCode, resp.Header, string(body), 408, nil, nil, "did not arrive within 20ms")
}

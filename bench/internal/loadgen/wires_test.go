package loadgen

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/record"
)

// slowDial counts the connections to a server that take 10 ms to open.
type slowDial struct {
	pipe          *mockserver.Pipe
	opened, alive atomic.Int32
}

func (s *slowDial) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	time.Sleep(10 * ms)
	conn, err := s.pipe.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.opened.Add(1)
	s.alive.Add(1)
	return &closeCounter{conn, &s.alive}, nil
}

type closeCounter struct {
	net.Conn
	alive *atomic.Int32
}

func (c *closeCounter) Close() error {
	c.alive.Add(-1)
	return c.Conn.Close()
}

// A burst does not measure how fast connections are opened, unless each request
// is to have a new one; a second burst opens none, and Close closes all.
func TestConnectionsAreOpenedAhead(t *testing.T) {
	for _, c := range []struct {
		name        string
		opts        HTTPOptions
		cfg         Config
		ttft        float64 // of all requests, in ms
		first, then int32   // connections opened after one and two runs
	}{
		{"burst", HTTPOptions{Connections: 8}, Config{Schedule: make([]time.Duration, 8)}, 20, 8, 8},
		{"limited", HTTPOptions{Connections: 3}, Config{Schedule: make([]time.Duration, 8), MaxConcurrency: 3}, 20, 3, 3},
		{"new ones", HTTPOptions{Connections: 8, NewConnections: true}, Config{Schedule: make([]time.Duration, 8)}, 30, 8, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &slowDial{pipe: mockserver.ServePipe(mockserver.New(mockserver.Config{TTFT: 20 * ms, ITL: ms}))}
				defer slow.pipe.Close()
				c.opts.Dial = slow.dial
				client := NewHTTP(c.opts)
				target := NewTarget(client, Chat, "http://mock", Options{}, TextRequests(make([]string, 8), 2))
				for i, want := range []int32{c.first, c.then} {
					s := metrics.Summarize(Run(t.Context(), target, c.cfg))
					if s.Completed != 8 || s.TTFT.Mean != c.ttft || s.TTFT.Max != c.ttft || slow.opened.Load() != want {
						t.Errorf("run %d: %d completed, TTFT %v to %v ms, %d connections; want 8, %v, %d", i, s.Completed, s.TTFT.Mean, s.TTFT.Max, slow.opened.Load(), c.ttft, want)
					}
				}
				client.OpenAhead(t.Context(), "http://mock/v1/chat/completions", 12)
				client.Close()
				synctest.Wait()
				if slow.alive.Load() != 0 {
					t.Errorf("%d connections are still open", slow.alive.Load())
				}
			})
		})
	}
}

// A server that refuses connections fails requests, with the reason, as before.
func TestConnectionsThatCannotBeOpenedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := NewHTTP(HTTPOptions{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }})
		defer client.Close()
		target := NewTarget(client, Chat, "http://mock", Options{}, TextRequests(make([]string, 2), 2))
		s := metrics.Summarize(Run(t.Context(), target, Config{Schedule: make([]time.Duration, 2)}))
		if s.Failed != 2 || len(s.Failures) != 1 || s.Failures[0].Label != "connect" {
			t.Errorf("%d failed: %+v; want 2, by connect", s.Failed, s.Failures)
		}
	})
}

const wireAnswer = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"

// serveRaw accepts connections until the test ends and gives each to serve.
func serveRaw(t *testing.T, serve func(conn net.Conn, in *bufio.Reader)) (base string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			})
		}
	})
	return "http://" + listener.Addr().String()
}

// readRequest reads a request to its end; false if there is none.
func readRequest(in *bufio.Reader) bool {
	req, err := http.ReadRequest(in)
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	return err == nil
}

func oneByOne(t *testing.T, base string, n int) metrics.Summary {
	t.Helper()
	client := NewHTTP(HTTPOptions{Connections: 1, Timeout: time.Minute})
	defer client.Close()
	target := NewTarget(client, Chat, base, Options{}, TextRequests(make([]string, n), 1))
	return metrics.Summarize(Run(t.Context(), target, Config{Schedule: make([]time.Duration, n), MaxConcurrency: 1}))
}

// A connection that the server closed while it was idle costs no request. An answer
// may come after one of status 100, and end with its connection.
func TestServerClosesIdleConnections(t *testing.T) {
	var asked atomic.Int32
	base := serveRaw(t, func(conn net.Conn, in *bufio.Reader) {
		if readRequest(in) {
			asked.Add(1)
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(wireAnswer), wireAnswer)
		}
	})
	if s := oneByOne(t, base, 5); s.Completed != 5 || asked.Load() != 5 {
		t.Errorf("%d of 5 requests completed, the server got %d: %+v", s.Completed, asked.Load(), s.Failures)
	}
	base = serveRaw(t, func(conn net.Conn, in *bufio.Reader) {
		if readRequest(in) {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n%s", wireAnswer)
		}
	})
	if s := oneByOne(t, base, 3); s.Completed != 3 {
		t.Errorf("answers that end with the connection: %d of 3 requests completed: %+v", s.Completed, s.Failures)
	}
}

// A server that closes connections instead of answering fails the request, which is
// sent again at most once: when the connection had been idle.
func TestServerClosesWithoutAnswer(t *testing.T) {
	var asked atomic.Int32
	base := serveRaw(t, func(_ net.Conn, in *bufio.Reader) {
		if readRequest(in) {
			asked.Add(1)
		}
	})
	s := oneByOne(t, base, 1)
	if s.Failed != 1 || !strings.Contains(s.Failures[0].First, "ended without an answer") || asked.Load() > 2 {
		t.Errorf("%d failed, the server was asked %d times: %+v", s.Failed, asked.Load(), s.Failures)
	}
}

// A server may refuse a large request without reading it, and goes on with the connection closed.
func TestRefusedBeforeItIsRead(t *testing.T) {
	base := serveRaw(t, func(conn net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
			_, _ = io.CopyN(io.Discard, in, 16<<20) // what is unread would reset the connection
		}
	})
	client := NewHTTP(HTTPOptions{Timeout: time.Minute})
	defer client.Close()
	x := client.Do(t.Context(), Call{URL: base, Body: make([]byte, 4<<20)})
	if x.Status != http.StatusRequestEntityTooLarge || x.ErrBody != "large" {
		t.Errorf("status %d, %q, %s; want 413, large", x.Status, x.ErrBody, x.Err)
	}
}

// A server whose certificate nobody knows is not talked to.
func TestUnknownCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	client := NewHTTP(HTTPOptions{Timeout: time.Minute})
	defer client.Close()
	if x := client.Do(t.Context(), Call{URL: server.URL}); x.Kind != record.Connect || !strings.Contains(x.Err, "certificate") {
		t.Errorf("kind %v, %s", x.Kind, x.Err)
	}
}

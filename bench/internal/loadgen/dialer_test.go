package loadgen

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
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

func TestDialAddress(t *testing.T) {
	for url, want := range map[string]string{
		"http://127.0.0.1:1919/v1": "127.0.0.1:1919", "http://localhost/x": "localhost:80", "https://localhost": "localhost:443", "http://[::1]:5/": "[::1]:5", "http://%zz": "",
	} {
		if got := dialAddress(url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

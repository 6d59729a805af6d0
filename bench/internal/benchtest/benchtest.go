// Package benchtest is what the tests of the benchmark programs share: mock
// servers, on the network or in memory, and a way to run a program.
package benchtest

import (
	"bytes"
	"context"
	"net"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/program"
)

// Serve starts a mock server that ends with the test, and returns its address.
func Serve(t *testing.T, cfg mockserver.Config) (*mockserver.Server, string) {
	t.Helper()
	mock := mockserver.New(cfg)
	server := httptest.NewServer(mock)
	t.Cleanup(server.Close)
	return mock, server.URL
}

// Output runs a program.
func Output(ctx context.Context, p program.Program, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = program.Run(ctx, p, args, &out, &err)
	return code, out.String(), err.String()
}

// WantLines wants a line that matches for each of the expressions.
func WantLines(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !regexp.MustCompile(`(?m)` + line).MatchString(got) {
			t.Errorf("no line matches %q in:\n%s", line, got)
		}
	}
}

// Hosts are mock servers in memory by their host names. A test under
// testing/synctest that dials them runs on a clock that only moves when client
// and servers wait, so that measured times are exact.
type Hosts map[string]*mockserver.Pipe

// Listen adds a server.
func (h Hosts) Listen(host string, cfg mockserver.Config) *mockserver.Server {
	server := mockserver.New(cfg)
	h[host] = mockserver.ServePipe(server)
	return server
}

// Dial connects to one of the servers.
func (h Hosts) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	pipe, ok := h[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return pipe.Dial(ctx, network, addr)
}

// Close stops the servers.
func (h Hosts) Close() {
	for _, pipe := range h {
		pipe.Close()
	}
}

package mockserver

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Pipe serves HTTP over connections in memory, so that a test under
// testing/synctest runs client and server on a clock that only they move.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	server *http.Server
	done   chan struct{}
}

// ServePipe starts a server; Close stops it.
func ServePipe(handler http.Handler) *Pipe {
	p := &Pipe{conns: make(chan net.Conn), closed: make(chan struct{}), done: make(chan struct{})}
	p.server = &http.Server{Handler: handler}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(listener{p})
	}()
	return p
}

// Dial connects to the server, whatever the address.
func (p *Pipe) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close stops the server and closes its connections.
func (p *Pipe) Close() {
	_ = p.server.Close()
	<-p.done
}

type listener struct{ p *Pipe }

func (l listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.p.conns:
		return conn, nil
	case <-l.p.closed:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error {
	l.p.once.Do(func() { close(l.p.closed) })
	return nil
}

func (l listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }

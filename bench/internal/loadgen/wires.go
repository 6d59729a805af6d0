package loadgen

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	mostAhead    = 1024 // connections opened before a run
	aheadTimeout = 5 * time.Second
	wireBuffer   = 16 << 10
)

// wires are HTTP/1.1 connections for the requests that are measured. A request's
// own goroutine writes and reads its connection, while net/http hands both to
// others: with many requests at once that costs more than a millisecond.
type wires struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	most int // idle connections to keep

	mu   sync.Mutex
	idle []*wire
}

// wire is one connection.
type wire struct {
	conn    net.Conn
	in      *bufio.Reader
	origin  string      // scheme and address it leads to
	waited  bool        // it was idle, so that the server may have closed it
	release func() bool // ends the watch of a request's context; false: that has interrupted the connection
}

// roundTrip sends a request and reads the head of the answer. Body.Close keeps
// the connection for others if the answer was read to its end.
func (p *wires) roundTrip(req *http.Request) (*http.Response, error) {
	var message bytes.Buffer // one system call for all of it
	if err := req.Write(&message); err != nil {
		return nil, err
	}
	for {
		w, err := p.take(req.Context(), req.URL)
		if err == nil {
			var resp *http.Response
			if resp, err = w.exchange(req, message.Bytes()); err == nil {
				resp.Body = &wireBody{ReadCloser: resp.Body, wire: w, pool: p, close: resp.Close || req.Close}
				return resp, nil
			}
			_ = w.release()
			_ = w.conn.Close() // the first error says more
			if w.waited && errors.Is(err, errNoAnswer) && req.Context().Err() == nil {
				continue // the server had closed it while nobody used it
			}
		}
		return nil, &url.Error{Op: "Post", URL: req.URL.String(), Err: err}
	}
}

// take returns an idle connection, or opens one. The context interrupts all that
// is done with it until it is released.
func (p *wires) take(ctx context.Context, to *url.URL) (*wire, error) {
	w := p.reuse(origin(to))
	if w == nil {
		var err error
		if w, err = p.open(ctx, to); err != nil {
			return nil, err
		}
	}
	w.release = context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(time.Unix(1, 0)) })
	return w, nil
}

func (p *wires) reuse(origin string) *wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if w := p.idle[i]; w.origin == origin {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return w
		}
	}
	return nil
}

func (p *wires) open(ctx context.Context, to *url.URL) (*wire, error) {
	port := cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	conn, err := p.dial(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if to.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{ServerName: to.Hostname(), MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		conn = secure
	}
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, wireBuffer), origin: origin(to)}, nil
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// put keeps a connection for another request, if there is room.
func (p *wires) put(w *wire) {
	w.waited = true
	p.mu.Lock()
	keep := len(p.idle) < p.most
	if keep {
		p.idle = append(p.idle, w)
	}
	p.mu.Unlock()
	if !keep {
		_ = w.conn.Close() // nobody waits for anything
	}
}

// openAhead opens connections until n are idle. What cannot be opened is left to
// the requests, which report why.
func (p *wires) openAhead(ctx context.Context, to *url.URL, n int) {
	ctx, cancel := context.WithTimeout(ctx, aheadTimeout)
	defer cancel()
	p.mu.Lock()
	n = min(n, p.most, mostAhead) - len(p.idle)
	p.mu.Unlock()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if w, err := p.open(ctx, to); err == nil {
				p.put(w)
			}
		})
	}
	wg.Wait()
}

func (p *wires) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.idle {
		_ = w.conn.Close() // nobody waits for anything
	}
	p.idle = nil
}

var errNoAnswer = errors.New("the connection ended without an answer")

// exchange writes a request and reads the head of the answer. A server may
// answer, and refuse, a request that it has not read to the end.
func (w *wire) exchange(req *http.Request, message []byte) (*http.Response, error) {
	_, failed := w.conn.Write(message)
	if _, err := w.in.Peek(1); err != nil {
		if failed != nil {
			err = failed
		}
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	for {
		resp, err := http.ReadResponse(w.in, req)
		if err != nil || resp.StatusCode >= http.StatusOK {
			return resp, err
		}
	}
}

// wireBody is the body of an answer.
type wireBody struct {
	io.ReadCloser
	wire  *wire
	pool  *wires
	close bool // the connection ends with this answer
	ended bool // all was read
}

func (b *wireBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// Close gives the connection back, or closes it.
func (b *wireBody) Close() error {
	if b.wire.release() && b.ended && !b.close {
		b.pool.put(b.wire)
		return nil
	}
	return b.wire.conn.Close()
}

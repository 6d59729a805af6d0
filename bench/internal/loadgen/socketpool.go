package loadgen

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/go/openai"
)

// streamsPerSocket is how many requests share a WebSocket; a server of minisgl
// takes 256.
const streamsPerSocket = 200

// socketPool keeps WebSockets, each for several requests at a time.
type socketPool struct {
	dialing chan struct{} // holds a value while somebody dials
	mu      sync.Mutex
	open    []*socket
}

// takeSocket returns a connection that has room for one more request.
func (h *HTTP) takeSocket(ctx context.Context, url string) (*socket, error) {
	if s := h.reuse(url); s != nil {
		return s, nil
	}
	select {
	case h.sockets.dialing <- struct{}{}: // so that many requests don't dial at once for one connection
		defer func() { <-h.sockets.dialing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := h.reuse(url); s != nil {
		return s, nil
	}
	conn, err := h.dialSocket(ctx, url)
	if err != nil {
		return nil, err
	}
	s := &socket{url: url, conn: conn, users: 1, streams: map[string]*stream{}, ended: make(chan struct{})}
	go s.read()
	h.sockets.mu.Lock()
	defer h.sockets.mu.Unlock()
	h.sockets.open = append(h.sockets.open, s)
	return s, nil
}

// reuse returns an open connection with room, if there may be one.
func (h *HTTP) reuse(url string) *socket {
	if h.opts.NewConnections {
		return nil
	}
	return h.sockets.find(url)
}

func (h *HTTP) dialSocket(ctx context.Context, url string) (*websocket.Conn, error) {
	header := http.Header{}
	for key, value := range h.opts.Header {
		header.Set(key, value)
	}
	d := websocket.Dialer{
		NetDialContext: h.opts.Dial, Proxy: http.ProxyFromEnvironment, ReadBufferSize: readBuffer,
		HandshakeTimeout: dialTimeout, Subprotocols: []string{openai.SocketProtocol},
	}
	conn, resp, err := d.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http"), header)
	if err != nil && resp != nil {
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		return nil, &handshakeError{resp.StatusCode, string(data)}
	}
	return conn, err
}

func (p *socketPool) find(url string) *socket {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = slices.DeleteFunc(p.open, (*socket).broken)
	for _, s := range p.open {
		if s.url == url && s.join() {
			return s
		}
	}
	return nil
}

func (h *HTTP) releaseSocket(s *socket) {
	s.mu.Lock()
	s.users--
	s.mu.Unlock()
	if h.opts.NewConnections {
		s.close()
	}
}

func (p *socketPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.open {
		s.close()
	}
	p.open = nil
}

// handshakeError is an answer of HTTP where a WebSocket was wanted.
type handshakeError struct {
	status int
	body   string // the start of it
}

func (e *handshakeError) Error() string {
	return fmt.Sprintf("%d %s: no WebSocket: %s", e.status, http.StatusText(e.status), snippet(e.body))
}

package server

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/go/openai"
)

const (
	socketQueue   = 64          // messages that wait to be written; then who sends waits
	socketGoodbye = time.Second // for the last messages of a connection that closes
)

// socket is one WebSocket connection. Its handler reads, and one goroutine
// writes what others send. openai's documentation describes the messages.
type socket struct {
	s    *Server
	conn *websocket.Conn
	out  chan []byte

	ctx   context.Context // ends when nothing more can be written
	lost  context.CancelFunc
	ended chan struct{} // closed when nothing more is read
	work  sync.WaitGroup

	mu       sync.Mutex
	stopping bool
}

// upgrade makes a WebSocket of a request, or answers it with an error.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) (*socket, bool) {
	if s.now() != ready {
		s.fail(w, s.unavailable())
		return nil, false
	}
	if !s.mayConnect(r) {
		s.fail(w, openai.Errorf(http.StatusForbidden, "pages of %s may not connect here; --cors-origin would allow it", r.Header.Get("Origin")))
		return nil, false
	}
	up := websocket.Upgrader{
		Subprotocols: []string{openai.SocketProtocol},
		CheckOrigin:  func(*http.Request) bool { return true }, // mayConnect has
		Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
			s.fail(w, openai.Errorf(status, "%v", reason))
		},
	}
	if !s.sockets.enter() {
		s.fail(w, shuttingDown())
		return nil, false
	}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		s.sockets.leave(nil)
		return nil, false
	}
	c := &socket{s: s, conn: conn, out: make(chan []byte, socketQueue), ended: make(chan struct{})}
	c.ctx, c.lost = context.WithCancel(s.tracer.Parent(r.Context(), r.Header))
	conn.SetReadLimit(s.cfg.MaxBody)
	conn.SetPongHandler(func(string) error { return c.expect() })
	s.sockets.add(c)
	return c, true
}

// mayConnect reports whether a request comes from one of our own pages, one of
// the configured origin, or no page at all. Browsers don't ask for it: they let
// any page open a WebSocket.
func (s *Server) mayConnect(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || s.cfg.CORSOrigin == "*" || s.cfg.CORSOrigin == origin {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// socketKey returns the API key that a handshake brings as a subprotocol.
func socketKey(r *http.Request) string {
	for _, name := range websocket.Subprotocols(r) {
		if text, ok := strings.CutPrefix(name, openai.SocketKeyPrefix); ok {
			key, _ := base64.RawURLEncoding.DecodeString(text)
			return string(key)
		}
	}
	return ""
}

// run reads until the client goes, a write fails or the server stops, and
// returns when all of the connection's work has ended.
func (c *socket) run(take func(message []byte)) {
	defer c.s.sockets.leave(c)
	var writer sync.WaitGroup
	writer.Go(c.write)
	if err := c.read(take); err != nil && !c.isStopping() {
		c.s.log.Debug("a WebSocket has ended", "error", err)
		c.lost()
	}
	close(c.ended)
	c.work.Wait()
	close(c.out)
	writer.Wait()
	if c.isStopping() {
		c.goodbye()
	}
	_ = c.close()
}

func (c *socket) read(take func(message []byte)) error {
	for {
		if err := c.expect(); err != nil {
			return err
		}
		kind, message, err := c.conn.ReadMessage()
		if err != nil {
			return err
		}
		if kind != websocket.TextMessage {
			_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseUnsupportedData, "messages must be text"), time.Now().Add(socketGoodbye))
			return errors.New("a message was not text")
		}
		take(message)
	}
}

// expect bounds the wait for the client's next message or pong.
func (c *socket) expect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return net.ErrClosed
	}
	return c.conn.SetReadDeadline(time.Now().Add(c.s.cfg.ReadTimeout))
}

// write writes what was sent, and pings, until out is closed or a write fails.
func (c *socket) write() {
	ping := time.NewTicker(c.s.cfg.ReadTimeout / 3)
	defer ping.Stop()
	for {
		var err error
		select {
		case message, more := <-c.out:
			if !more {
				return
			}
			_ = c.conn.SetWriteDeadline(time.Now().Add(c.s.cfg.WriteTimeout))
			err = c.conn.WriteMessage(websocket.TextMessage, message)
		case <-ping.C:
			err = c.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.s.cfg.WriteTimeout))
		case <-c.ctx.Done():
			return
		}
		if err != nil {
			c.s.log.Debug("a client went away", "error", err)
			_ = c.close()
			return
		}
	}
}

// send hands a message to the writer. It waits while too many wait already, and
// fails when the connection is lost, which it is when a write takes too long.
func (c *socket) send(message []byte) error {
	select {
	case c.out <- message:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// stop ends the reading. What runs may still be answered.
func (c *socket) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	_ = c.conn.SetReadDeadline(time.Now())
}

func (c *socket) isStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// goodbye tells the client that the server is going. What it has sent meanwhile
// is read, for otherwise its kernel might throw our last messages away.
func (c *socket) goodbye() {
	reason := websocket.FormatCloseMessage(websocket.CloseGoingAway, shuttingDown().Message)
	if c.conn.WriteControl(websocket.CloseMessage, reason, time.Now().Add(socketGoodbye)) != nil {
		return
	}
	under := c.conn.NetConn()
	if half, ok := under.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	_ = under.SetReadDeadline(time.Now().Add(socketGoodbye))
	_, _ = io.Copy(io.Discard, under)
}

// close breaks the connection, and with it all of its work.
func (c *socket) close() error {
	c.lost()
	return c.conn.Close()
}

// sockets are the open connections, which net/http knows nothing of.
type sockets struct {
	mu     sync.Mutex
	open   map[*socket]struct{}
	closed bool
	served sync.WaitGroup
}

// enter reports whether there may be one more. Who enters must leave: a client
// knows of its connection before we do, and must still be told when we go.
func (l *sockets) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.served.Add(1)
	return true
}

// add names one that has entered. If the server is going, its reading ends.
func (l *sockets) add(c *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*socket]struct{}{}
	}
	l.open[c] = struct{}{}
	if l.closed {
		c.stop()
	}
}

func (l *sockets) leave(c *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	l.served.Done()
}

// close lets the connections send their last messages, until ctx ends.
func (l *sockets) close(ctx context.Context) {
	l.each((*socket).stop)
	cut := context.AfterFunc(ctx, func() { l.each(func(c *socket) { _ = c.close() }) })
	defer cut()
	l.served.Wait()
}

func (l *sockets) each(do func(*socket)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		do(c)
	}
}

package mockserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/go/openai"
)

// socket serves minisgl's /ws/generate.
type socket struct {
	s      *Server
	conn   *websocket.Conn
	header http.Header

	mu      sync.Mutex // of writes and of running
	running map[string]context.CancelFunc
}

func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{Subprotocols: []string{openai.SocketProtocol}}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	conn.SetReadLimit(maxBody)
	c := &socket{s: s, conn: conn, header: r.Header, running: map[string]context.CancelFunc{}}
	ctx, cancel := context.WithCancel(r.Context())
	var answers sync.WaitGroup
	defer answers.Wait()
	defer cancel()
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		cmd, err := openai.ParseSocketCommand(message)
		switch {
		case err != nil:
			c.send(openai.SocketEvent{Type: openai.SocketReject, ID: cmd.ID, Status: http.StatusBadRequest, Error: openai.Errorf(http.StatusBadRequest, "%v", err)})
		case cmd.Type == openai.SocketAbort:
			c.forget(cmd.ID)
		default:
			ctx := c.register(ctx, cmd.ID)
			answers.Go(func() { c.answer(ctx, cmd) })
		}
	}
}

func (c *socket) register(ctx context.Context, id string) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[id] = cancel
	return ctx
}

// forget ends a request, if it still runs.
func (c *socket) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[id]; cancel != nil {
		cancel()
		delete(c.running, id)
	}
}

// answer answers one request as the HTTP API would. A stream that ends without
// its end breaks the connection, as it would there.
func (c *socket) answer(ctx context.Context, cmd openai.SocketCommand) {
	defer c.forget(cmd.ID)
	w := &messageWriter{c: c, id: cmd.ID, header: http.Header{}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(string(cmd.Request)))
	if err != nil {
		panic(err) // the address is right
	}
	r.Header = c.header
	func() {
		defer func() { _ = recover() }() // http.ErrAbortHandler
		c.s.generate(w, r, chatAPI)
	}()
	if !w.ended && ctx.Err() == nil {
		_ = c.conn.Close()
	}
}

func (c *socket) send(e openai.SocketEvent) {
	e.V = openai.SocketVersion
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	c.write(data)
}

// write fails when the client left, which the reader notices.
func (c *socket) write(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.WriteMessage(websocket.TextMessage, message)
}

// messageWriter makes messages of an answer that is written as HTTP's.
type messageWriter struct {
	c      *socket
	id     string
	header http.Header
	status int
	seq    int
	ended  bool
	rest   strings.Builder // of an event that is not complete
}

func (w *messageWriter) Header() http.Header    { return w.header }
func (w *messageWriter) WriteHeader(status int) { w.status = status }
func (w *messageWriter) Flush()                 {}

// Write takes a whole refusal, or a piece of an event stream.
func (w *messageWriter) Write(p []byte) (int, error) {
	if w.status >= http.StatusBadRequest {
		var body openai.ErrorBody
		_ = json.Unmarshal(p, &body) // ours
		w.ended = true
		w.c.send(openai.SocketEvent{Type: openai.SocketReject, ID: w.id, Status: w.status, Error: body.Error})
		return len(p), nil
	}
	w.rest.Write(p)
	if text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(w.rest.String()); strings.HasSuffix(text, "\n\n") {
		w.rest.Reset()
		w.events(text)
	}
	return len(p), nil
}

func (w *messageWriter) events(text string) {
	events := openai.NewEventReader(strings.NewReader(text), 0)
	for {
		ev, err := events.Next()
		if err != nil {
			return
		}
		w.event(ev)
	}
}

func (w *messageWriter) event(ev openai.Event) {
	if w.seq == 0 {
		w.next(openai.SocketEvent{Type: openai.SocketStart, Model: w.c.s.cfg.Model})
	}
	var failure openai.ErrorBody
	switch {
	case ev.Data == "[DONE]":
		w.next(openai.SocketEvent{Type: openai.SocketFinish})
	case ev.Name == "error":
		w.next(openai.SocketEvent{Type: openai.SocketError, Error: openai.Errorf(http.StatusInternalServerError, "%s", ev.Data)})
	case json.Unmarshal([]byte(ev.Data), &failure) == nil && failure.Error != nil:
		w.next(openai.SocketEvent{Type: openai.SocketError, Error: failure.Error})
	case !json.Valid([]byte(ev.Data)):
		w.c.write(fmt.Appendf(nil, `{"v":1,"type":"token","id":%q,"seq":%d,"chunk":%s`, w.id, w.seq, ev.Data))
		w.seq++
	default:
		w.next(openai.SocketEvent{Type: openai.SocketToken, Chunk: json.RawMessage(ev.Data)})
	}
}

func (w *messageWriter) next(e openai.SocketEvent) {
	e.ID, e.Seq = w.id, w.seq
	w.seq++
	w.ended = e.Type != openai.SocketStart && e.Type != openai.SocketToken
	w.c.send(e)
}

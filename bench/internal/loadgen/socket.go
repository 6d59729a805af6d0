package loadgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/go/openai"
)

// socket is one connection. A goroutine of its own reads it.
type socket struct {
	url     string
	conn    *websocket.Conn
	writing sync.Mutex
	ended   chan struct{} // closed when nothing is read any more

	mu      sync.Mutex
	users   int                // requests that have it
	streams map[string]*stream // that have not ended, by id
	lastID  int
	err     error // why it is broken
}

// stream is a request on a socket. Its exchange belongs to the reader until the
// request has ended or was dropped.
type stream struct {
	id     string
	x      *Exchange
	limits *limits
	seq    int // of the next event
	size   int // bytes of the events so far
	ended  chan struct{}
}

// DoSocket sends a call as a chat over a WebSocket and reads the answer.
func (h *HTTP) DoSocket(parent context.Context, call Call) *Exchange {
	x := &Exchange{}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	limits := h.startLimits(cancel)
	defer limits.stop()
	s, st, err := h.startOnSocket(ctx, call, x, limits)
	var refusal *handshakeError
	switch {
	case errors.As(err, &refusal):
		x.Status, x.ErrBody = refusal.status, refusal.body
		return x.fail(record.HTTPStatus, "%v", err)
	case err != nil:
		return x.failRead(ctx, parent, record.Connect, err)
	}
	defer h.releaseSocket(s)
	select {
	case <-st.ended:
	case <-ctx.Done():
		s.drop(st)
		return x.failRead(ctx, parent, record.Truncated, ctx.Err())
	}
	return x
}

// startOnSocket sends a request. When a connection that others opened breaks
// before it is sent, it takes another one, as net/http does.
func (h *HTTP) startOnSocket(ctx context.Context, call Call, x *Exchange, limits *limits) (*socket, *stream, error) {
	for try := 0; ; try++ {
		s, err := h.takeSocket(ctx, call.URL)
		if err != nil {
			return nil, nil, err
		}
		st, err := s.start(x, limits, call.Body)
		if err == nil {
			return s, st, nil
		}
		h.releaseSocket(s)
		if ctx.Err() != nil || try == 2 {
			return nil, nil, err
		}
	}
}

func (s *socket) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *socket) join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users >= streamsPerSocket {
		return false
	}
	s.users++
	return true
}

// close waits until the reader has ended.
func (s *socket) close() {
	_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	_ = s.conn.Close()
	<-s.ended
}

// start sends a request.
func (s *socket) start(x *Exchange, limits *limits, body []byte) (*stream, error) {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.lastID++
	st := &stream{id: strconv.Itoa(s.lastID), x: x, limits: limits, ended: make(chan struct{})}
	s.streams[st.id] = st
	s.mu.Unlock()
	err := s.command(openai.SocketCommand{Type: openai.SocketStart, ID: st.id, API: openai.SocketChat, Request: body})
	if err == nil {
		return st, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	delete(s.streams, st.id)
	return nil, err
}

func (s *socket) command(c openai.SocketCommand) error {
	c.V = openai.SocketVersion
	message, err := json.Marshal(c)
	if err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.conn.WriteMessage(websocket.TextMessage, message)
}

// drop gives a request up.
func (s *socket) drop(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.id)
	s.mu.Unlock()
	_ = s.command(openai.SocketCommand{Type: openai.SocketAbort, ID: st.id}) // if it fails, the connection is broken
}

// read hands the messages to their requests until the connection breaks.
func (s *socket) read() {
	defer close(s.ended)
	for {
		_, message, err := s.conn.ReadMessage()
		at := time.Now()
		if err == nil {
			err = s.message(message, at)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// errMessage is one that nobody understands.
var errMessage = errors.New("a message was not understood")

// fail ends all requests.
func (s *socket) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	_ = s.conn.Close()
	kind := record.Truncated
	if errors.Is(err, errMessage) {
		kind = record.BadJSON
	}
	for st := range maps.Values(s.streams) {
		st.x.fail(kind, "the connection broke after %d events: %v", len(st.x.Events), err)
		close(st.ended)
	}
	s.streams = nil
}

// event is what openai.SocketEvent says, without a copy of what is sent on as it
// came.
type event struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Seq    int             `json:"seq"`
	Status int             `json:"status"`
	Chunk  json.RawMessage `json:"chunk"`
	Error  json.RawMessage `json:"error"`
}

func (s *socket) message(message []byte, at time.Time) error {
	var ev event
	if err := json.Unmarshal(message, &ev); err != nil {
		return fmt.Errorf("%w: %s: %s", errMessage, jsonText(err), snippet(string(message)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[ev.ID]
	if st == nil {
		return nil // dropped
	}
	st.limits.touch()
	if st.take(ev, at) {
		delete(s.streams, ev.ID)
		close(st.ended)
	}
	return nil
}

// take reports whether an event was the last one.
func (st *stream) take(ev event, at time.Time) bool {
	x := st.x
	if ev.Type != openai.SocketReject && ev.Seq != st.seq {
		x.fail(record.BadJSON, "event %d came where event %d was due: one was lost or doubled", ev.Seq, st.seq)
		return true
	}
	st.seq++
	switch ev.Type {
	case openai.SocketStart:
		x.Status = http.StatusOK
		return false
	case openai.SocketToken:
		x.Events = append(x.Events, openai.Event{Data: string(ev.Chunk), At: at})
		if st.size += len(ev.Chunk); st.size > maxAnswer {
			x.fail(record.Truncated, "the answer is larger than %d bytes", maxAnswer)
			return true
		}
		return false
	case openai.SocketFinish:
		x.Finish = true
	case openai.SocketError:
		x.Events = append(x.Events, openai.Event{Data: `{"error":` + string(ev.Error) + `}`, At: at})
	case openai.SocketReject:
		x.Status, x.ErrBody = ev.Status, `{"error":`+string(ev.Error)+`}`
		x.fail(record.HTTPStatus, "%d %s: %s", ev.Status, http.StatusText(ev.Status), snippet(x.ErrBody))
	default:
		return false
	}
	x.Done = at
	return true
}

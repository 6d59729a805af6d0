package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// maxSocketRequests is how many requests one connection may run at once.
const maxSocketRequests = 256

// socketGenerate serves /ws/generate.
func (s *Server) socketGenerate(w http.ResponseWriter, r *http.Request) {
	if c, ok := s.upgrade(w, r); ok {
		session := &session{socket: c, running: map[string]context.CancelFunc{}}
		c.run(session.take)
	}
}

// session is the requests of one connection.
type session struct {
	*socket
	mu      sync.Mutex
	running map[string]context.CancelFunc // what aborts them, by the client's ids
}

// take carries out a command.
func (n *session) take(message []byte) {
	cmd, err := openai.ParseSocketCommand(message)
	switch {
	case err != nil:
		n.refuse(openai.SocketReject, cmd.ID, 0, err)
	case cmd.Type == openai.SocketAbort:
		n.abort(cmd.ID)
	default:
		n.start(cmd)
	}
}

func (n *session) abort(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if abort := n.running[id]; abort != nil {
		abort()
	}
}

func (n *session) start(cmd openai.SocketCommand) {
	aborted, abort := context.WithCancel(n.ctx)
	if err := n.register(cmd.ID, abort); err != nil {
		abort()
		n.refuse(openai.SocketReject, cmd.ID, 0, err)
		return
	}
	n.work.Go(func() {
		defer abort()
		x := &exchange{session: n, id: cmd.ID}
		x.run(aborted, cmd)
	})
}

// register takes an id, if it is free and there may be one more request.
func (n *session) register(id string, abort context.CancelFunc) error {
	if n.s.now() != ready {
		return n.s.unavailable()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running[id] != nil {
		return openai.Invalid("id", "%q runs already", id)
	}
	if len(n.running) >= maxSocketRequests {
		return openai.Errorf(http.StatusTooManyRequests, "%d requests run on this connection, which is the limit; wait for an end, or open another one", maxSocketRequests).
			WithCode(openai.CodeTooManyRequests)
	}
	n.running[id] = abort
	return nil
}

func (n *session) forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.running, id)
}

// refuse sends a reject or an error.
func (n *session) refuse(kind, id string, seq int, err error) {
	e := n.s.apiError(err)
	_ = n.event(openai.SocketEvent{Type: kind, ID: id, Seq: seq, Status: e.Status, Error: e})
}

// event sends an event; it fails when the connection is lost.
func (n *session) event(e openai.SocketEvent) error {
	e.V = openai.SocketVersion
	message, err := encode(e)
	if err != nil {
		return err
	}
	return n.send(message)
}

// exchange is one request and its events.
type exchange struct {
	*session
	id  string
	seq int // of the next event
}

// run answers one start command, and ends the request when aborted ends.
func (x *exchange) run(aborted context.Context, cmd openai.SocketCommand) {
	last, err := x.generate(aborted, cmd)
	x.forget(x.id) // first: who reads the end may use the id again
	switch {
	case err == nil:
		_ = x.next(last)
	case x.seq == 0:
		x.refuse(openai.SocketReject, x.id, 0, err)
	default:
		x.refuse(openai.SocketError, x.id, x.seq, err)
	}
}

// generate sends all events but the last, which it returns.
func (x *exchange) generate(aborted context.Context, cmd openai.SocketCommand) (openai.SocketEvent, error) {
	read := map[string]func([]byte) (*task, error){
		openai.SocketChat: x.s.chatCompletions, openai.SocketCompletions: x.s.completions, openai.SocketGenerate: x.s.generate,
	}[cmd.API]
	last := openai.SocketEvent{Type: openai.SocketFinish}
	t, err := read(cmd.Request)
	if err != nil {
		return last, err
	}
	ctx, cancel := x.s.deadline(x.ctx)
	defer cancel()
	g, err := x.s.start(ctx, t.jobs)
	if err != nil {
		return last, err
	}
	defer g.close()
	defer context.AfterFunc(aborted, g.abort)()
	if err := x.next(openai.SocketEvent{Type: openai.SocketStart, RequestID: t.jobs[0].rid, Model: t.model}); err != nil {
		return last, err
	}
	for g.left > 0 {
		if err := x.step(ctx, g, t.answer); err != nil {
			return last, err
		}
	}
	last.FinishReason, last.Usage = t.answer.finish(), t.answer.usage()
	last.TTFT, last.E2E = g.times()
	return last, nil
}

// step sends what an event of the engine gives.
func (x *exchange) step(ctx context.Context, g *group, a answer) error {
	i, ev, err := g.next(ctx)
	if err != nil {
		return err
	}
	a.add(i, ev)
	for _, chunk := range a.events(i, ev) {
		data, err := encode(chunk)
		if err != nil {
			return err
		}
		if err := x.next(openai.SocketEvent{Type: openai.SocketToken, Chunk: data}); err != nil {
			return err
		}
	}
	return nil
}

// next sends the request's next event.
func (x *exchange) next(e openai.SocketEvent) error {
	e.ID, e.Seq = x.id, x.seq
	x.seq++
	return x.event(e)
}

// times returns a group's time to the first token, if there was one, and its
// whole time so far, in milliseconds.
func (g *group) times() (ttft, e2e *float64) {
	now := time.Now()
	milliseconds := func(d time.Duration) *float64 {
		ms := float64(d) / float64(time.Millisecond)
		return &ms
	}
	for _, m := range g.members {
		if first := m.timer.first; !first.IsZero() && (ttft == nil || *milliseconds(first.Sub(m.timer.begin)) < *ttft) {
			ttft = milliseconds(first.Sub(m.timer.begin))
		}
	}
	return ttft, milliseconds(now.Sub(g.members[0].timer.begin))
}

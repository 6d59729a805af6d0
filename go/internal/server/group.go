package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/minisgl/minisgl/go/internal/tracing"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// errAborted ends a request whose client asked for it.
var errAborted = errors.New("aborted on request")

const codeQueueFull = "queue_full"

// job is one request to the engine.
type job struct {
	req   llm.Request
	rid   string // what /abort_request knows it by
	param string // where its prompt was in the HTTP request

	stages *stages // nil: the engine can run it as it is
}

// group is the engine's requests that one HTTP request asked for.
type group struct {
	s       *Server
	members []*member
	left    int           // members that have not ended
	parts   chan part     // of the readers; nil if there is one member, which needs none
	closing chan struct{} // closed when nobody takes parts any more
	readers sync.WaitGroup
}

// member is one of them.
type member struct {
	s      *Server
	stream Stream
	ctx    context.Context
	cancel context.CancelCauseFunc
	rid    string
	req    llm.Request
	last   llm.Event
	timer  timer
	ended  bool
	err    error // why it ended badly
}

// part is an event of one member.
type part struct {
	index int
	ev    llm.Event
	err   error
}

// start hands requests to the engine. The caller must close the group.
func (s *Server) start(ctx context.Context, jobs []job) (*group, error) {
	if err := s.admit(len(jobs)); err != nil {
		return nil, err
	}
	g := &group{s: s, closing: make(chan struct{})}
	for _, j := range jobs {
		m, err := s.startMember(ctx, j)
		if err != nil {
			s.live.Add(int64(len(g.members) - len(jobs)))
			g.close()
			return nil, err
		}
		g.members = append(g.members, m)
	}
	g.left = len(jobs)
	if len(jobs) > 1 {
		g.read()
	}
	return g, nil
}

// admit counts n more requests, unless too many wait already.
func (s *Server) admit(n int) error {
	live := s.live.Add(int64(n))
	if s.cfg.MaxQueued == 0 {
		return nil
	}
	if live > int64(s.cfg.MaxRunning+s.cfg.MaxQueued) || s.engine.Stats().Waiting >= s.cfg.MaxQueued {
		s.live.Add(-int64(n))
		return openai.Errorf(http.StatusServiceUnavailable, "%d requests are waiting, which is the limit; try again later", s.cfg.MaxQueued).
			WithCode(codeQueueFull)
	}
	return nil
}

func (s *Server) startMember(ctx context.Context, j job) (*member, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := s.startStream(ctx, j)
	if err != nil {
		cancel(nil)
		var invalid *llm.InvalidError
		if errors.As(err, &invalid) && invalid.Field == "prompt" {
			return nil, openai.Invalid(j.param, "%s", invalid.Message)
		}
		return nil, err
	}
	m := &member{s: s, stream: stream, ctx: ctx, cancel: cancel, rid: j.rid, req: j.req, timer: timer{begin: time.Now()}}
	s.running.Store(m, nil)
	s.metrics.started.Inc()
	return m, nil
}

// read makes a goroutine read each member, into parts.
func (g *group) read() {
	g.parts = make(chan part)
	for i, m := range g.members {
		g.readers.Go(func() {
			for {
				ev, err := m.next()
				select {
				case g.parts <- part{i, ev, err}:
				case <-g.closing:
					return
				}
				if err != nil || ev.Finish != "" {
					return
				}
			}
		})
	}
}

// next returns the next event and whose it is.
func (g *group) next(ctx context.Context) (int, llm.Event, error) {
	p := part{}
	if g.parts == nil {
		p.ev, p.err = g.members[0].next()
	} else {
		select {
		case p = <-g.parts:
		case <-ctx.Done():
			p.err = ctx.Err()
		}
	}
	if p.err == nil && p.ev.Finish != "" {
		g.left--
	}
	return p.index, p.ev, p.err
}

// close ends what still runs.
func (g *group) close() {
	for _, m := range g.members {
		m.cancel(nil)
	}
	close(g.closing)
	g.readers.Wait()
	for _, m := range g.members {
		m.stream.Close()
		m.s.running.Delete(m)
		if !m.ended {
			m.s.metrics.aborted.Inc()
		}
		m.trace()
	}
	g.s.live.Add(-int64(len(g.members)))
}

// abort ends what still runs, for the client that asked for it.
func (g *group) abort() {
	for _, m := range g.members {
		m.cancel(errAborted)
	}
}

// trace tells the collector of a member that has ended.
func (m *member) trace() {
	p, usage := m.req.Params, m.last.Usage
	m.s.tracer.Done(m.ctx, tracing.Request{
		ID: m.rid, Model: m.s.modelName(), Received: m.timer.begin, Begun: m.last.Begun, First: m.timer.first, Ended: time.Now(),
		PromptTokens: usage.PromptTokens, CachedTokens: usage.CachedTokens, CompletionTokens: usage.CompletionTokens,
		MaxTokens: p.MaxTokens, Temperature: p.Temperature, TopP: p.TopP, Finish: string(m.last.Finish), Err: m.err,
	})
}

// next returns the member's next event; one that ends it badly is an error.
func (m *member) next() (ev llm.Event, err error) {
	if ev, err = m.receive(); err != nil {
		m.err = err
		return ev, err
	}
	m.last = ev
	m.ended = ev.Finish != "" && ev.Finish != llm.FinishAbort
	m.s.metrics.observe(&m.timer, ev)
	return ev, nil
}

func (m *member) receive() (llm.Event, error) {
	ev, err := m.stream.Next(m.ctx)
	aborted := errors.Is(context.Cause(m.ctx), errAborted)
	switch {
	case err != nil && aborted:
		return llm.Event{Finish: llm.FinishAbort, Usage: m.last.Usage, Begun: m.last.Begun}, nil
	case errors.Is(err, io.EOF):
		return ev, errors.New("the request ended without a last event")
	case err != nil:
		return ev, err
	case ev.Finish == llm.FinishError && ev.Err == nil:
		return ev, errors.New("a forward pass failed")
	case ev.Finish == llm.FinishError:
		return ev, ev.Err
	case ev.Finish == llm.FinishAbort && !aborted && m.ctx.Err() != nil:
		return ev, m.ctx.Err()
	case ev.Finish == llm.FinishAbort && !aborted:
		return ev, shuttingDown()
	}
	return ev, nil
}

// abort ends the requests of a name, or all, and returns their number.
func (s *Server) abort(rid string, all bool) int {
	n := 0
	s.running.Range(func(key, _ any) bool {
		if m := key.(*member); all || m.rid == rid {
			m.cancel(errAborted)
			n++
		}
		return true
	})
	return n
}

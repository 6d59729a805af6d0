package llm

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// Stream is a running request, read by one goroutine. Its events wait in memory
// until they are read; there are at most as many as the request has tokens.
type Stream struct {
	l       *LLM
	uid     core.UID
	detok   *tokenizer.Detokenizer
	stop    *stopMatcher
	stopIDs []int32
	usage   Usage
	ended   bool
	unhook  func() bool
	queue   queue
}

// Stream starts a request. An InvalidError says what is wrong with it; ErrClosed
// and ErrDraining that the engine takes none. When ctx ends the request is
// aborted. Text leaves out special tokens, but for req.KeepSpecial.
func (l *LLM) Stream(ctx context.Context, req Request) (*Stream, error) {
	stop, err := newStopMatcher(req.Stop)
	if err != nil {
		return nil, err
	}
	r, err := l.prepare(req)
	if err != nil {
		return nil, err
	}
	s := &Stream{l: l, uid: r.UID, detok: l.tok.NewDetokenizer(true, req.KeepSpecial...), stop: stop, stopIDs: req.StopTokenIDs}
	s.usage.PromptTokens = r.PromptLen
	s.queue.ready = make(chan struct{}, 1)
	if !l.send(command{kind: addReqs, reqs: []*core.Req{r}, sink: &s.queue}) {
		return nil, ErrClosed
	}
	s.unhook = context.AfterFunc(ctx, s.abort)
	return s, nil
}

// Next returns the next event and io.EOF after the last one. When ctx ends first
// it returns ctx's error, and the request goes on.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	if s.ended {
		return Event{}, io.EOF
	}
	item, err := s.queue.pop(ctx)
	if err != nil {
		return Event{}, err
	}
	return s.event(item), nil
}

// event turns a token into text. A stop string or a stop token ends the request
// here: the engine doesn't know of them, so what it computes on is aborted.
func (s *Stream) event(it item) Event {
	ev := Event{Token: it.token, HasToken: it.hasToken, Finish: it.finish, Err: it.err, Logprob: it.logprob, PromptLogprob: it.prompt}
	text := ""
	if it.hasToken {
		s.usage.CachedTokens = it.cached
	}
	switch {
	case it.hasToken && slices.Contains(s.stopIDs, it.token):
		ev = Event{Finish: FinishStop, PromptLogprob: it.prompt}
	case it.hasToken:
		text = s.detok.Push(it.token)
		s.usage.CompletionTokens++
	}
	if ev.Finish != "" {
		text += s.detok.Flush()
	}
	ev.Text, ev.Stop = s.stop.push(text)
	switch {
	case ev.Stop != "":
		ev.Finish, ev.Err = FinishStop, nil
	case ev.Finish != "":
		ev.Text += s.stop.release()
	}
	if ev.Finish != "" {
		s.ended = true
		s.unhook()
		if it.finish == "" {
			s.l.send(command{kind: stopReq, uids: []core.UID{s.uid}, usage: s.usage})
		}
	}
	ev.Usage, ev.Begun = s.usage, it.begun
	return ev
}

// Close aborts the request if it is still running.
func (s *Stream) Close() {
	s.unhook()
	if !s.ended {
		s.abort()
	}
}

func (s *Stream) abort() { s.l.send(command{kind: abortReqs, uids: []core.UID{s.uid}}) }

// queue passes a request's outputs from the loop to its reader.
type queue struct {
	mu    sync.Mutex
	items []item
	ready chan struct{} // holds a token when items may have come
}

// item is the part of an output that outlives the loop's step.
type item struct {
	token    int32
	hasToken bool
	cached   int
	finish   FinishReason
	err      error
	prompt   []TokenLogprob
	logprob  *TokenLogprob
	begun    time.Time
}

// push implements sink.
func (q *queue) push(out output) {
	prompt, logprob := splitScores(out)
	q.mu.Lock()
	q.items = append(q.items, item{out.Token, out.HasToken, out.Req.CachedLen, out.Finish, out.err, prompt, logprob, out.begun})
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) pop(ctx context.Context) (item, error) {
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			it := q.items[0]
			q.items = q.items[1:]
			q.mu.Unlock()
			return it, nil
		}
		q.mu.Unlock()
		select {
		case <-q.ready:
		case <-ctx.Done():
			return item{}, ctx.Err()
		}
	}
}

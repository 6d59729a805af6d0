package native

import (
	"context"

	"github.com/minisgl/minisgl/go/llm"
)

// stream is a running request whose tokens go to a mailbox.
type stream struct {
	cancel context.CancelFunc
	box    *mailbox
}

var streams table[*stream]

// StartStream starts to generate for one request (see request) and sends each
// token to a mailbox as an event; the last event has a finish reason or an error,
// and nothing follows it. A request that can't be used ends so at once.
func StartStream(engine, box int64, text string) (id int64, err error) {
	defer guard(&err)
	e, err := engineOf(engine)
	if err != nil {
		return 0, err
	}
	m, err := mailboxOf(box)
	if err != nil {
		return 0, err
	}
	var r request
	if err := decode(text, &r); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{cancel: cancel, box: m}
	id = streams.add(s)
	if !m.join(id, s) {
		s.end(id)
		return 0, fail(kindClosed, "the mailbox was closed")
	}
	go s.run(ctx, id, e.LLM, r)
	return id, nil
}

// CancelStream aborts a stream; events that have come before stay in the
// mailbox. It does nothing to a stream that has ended.
func CancelStream(id int64) (none bool, err error) {
	defer guard(&err)
	if s, ok := streams.get(id); ok {
		s.cancel()
	}
	return none, nil
}

// run passes a request's events on, up to the last one.
func (s *stream) run(ctx context.Context, id int64, e *llm.LLM, r request) {
	defer s.end(id)
	defer func() {
		if p := recover(); p != nil {
			s.box.push(event{Stream: id, Error: panicError(p)})
		}
	}()
	if err := s.forward(ctx, id, e, r); err != nil {
		known := classify(err)
		if known.Field == "prompt" { // as llm calls it
			known.Field = r.Name
		}
		s.box.push(event{Stream: id, Error: known})
	}
}

func (s *stream) forward(ctx context.Context, id int64, e *llm.LLM, r request) error {
	reqs, err := resolve(e, []request{r})
	if err != nil {
		return err
	}
	running, err := e.Stream(ctx, reqs[0])
	if err != nil {
		return err
	}
	defer running.Close()
	for {
		// Not ctx: the request ends with it, and its last event says so.
		ev, err := running.Next(context.Background())
		if err != nil {
			return err
		}
		if ev.Err != nil {
			return ev.Err
		}
		s.box.push(newEvent(id, ev))
		if ev.Finish != "" {
			return nil
		}
	}
}

func (s *stream) end(id int64) {
	s.cancel()
	s.box.leave(id)
	streams.remove(id)
}

func newEvent(id int64, ev llm.Event) event {
	out := event{
		Stream:           id,
		Text:             ev.Text,
		FinishReason:     string(ev.Finish),
		PromptTokens:     ev.Usage.PromptTokens,
		CachedTokens:     ev.Usage.CachedTokens,
		CompletionTokens: ev.Usage.CompletionTokens,
	}
	if ev.HasToken {
		out.TokenID = &ev.Token
	}
	if ev.Logprob != nil {
		logprob := newLogprob(*ev.Logprob)
		out.Logprob = &logprob
	}
	out.PromptLogprobs = newLogprobs(ev.PromptLogprob, len(ev.PromptLogprob) > 0)
	return out
}

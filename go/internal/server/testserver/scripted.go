package main

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/minisgl/minisgl/go/internal/server"
	"github.com/minisgl/minisgl/go/llm"
)

// scripted is an engine that gives the answers it was told.
type scripted struct {
	server.LLM
	mu    sync.Mutex
	texts []string
}

func newScripted(l *llm.LLM, texts []string) *scripted {
	return &scripted{LLM: server.LLM{LLM: l}, texts: texts}
}

// Stream takes the next answer, in the place of running the model.
func (s *scripted) Stream(_ context.Context, req llm.Request) (server.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.texts) == 0 {
		return nil, errors.New("no answer is left")
	}
	ids, err := s.Encode(s.texts[0], false)
	if err != nil {
		return nil, err
	}
	s.texts = s.texts[1:]
	return &answer{events: s.events(ids, req)}, nil
}

// events are those of an engine that has generated ids.
func (s *scripted) events(ids []int32, req llm.Request) []llm.Event {
	text := s.Tokenizer().NewDetokenizer(true, req.KeepSpecial...)
	events := make([]llm.Event, 0, len(ids)+1)
	usage := llm.Usage{PromptTokens: len(req.TokenIDs)}
	for _, id := range ids {
		usage.CompletionTokens++
		events = append(events, llm.Event{Token: id, HasToken: true, Text: text.Push(id), Usage: usage})
	}
	return append(events, llm.Event{Text: text.Flush(), Finish: llm.FinishStop, Usage: usage})
}

// answer is a request that takes no time.
type answer struct{ events []llm.Event }

// Next implements server.Stream.
func (a *answer) Next(ctx context.Context) (llm.Event, error) {
	if len(a.events) == 0 {
		return llm.Event{}, io.EOF
	}
	ev := a.events[0]
	a.events = a.events[1:]
	return ev, ctx.Err()
}

// Close implements server.Stream.
func (a *answer) Close() {}

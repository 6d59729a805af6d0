package server

import (
	"context"
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// stages is what a chat asks for that begins within its answer: a budget ends
// reasoning, and a grammar holds behind it, unless the answer calls tools.
type stages struct {
	budget int               // tokens of reasoning at most
	parse  chatparse.Options // how reasoning, and calls if there may be any, are found
}

// stagesOf returns nil if the engine can run the request as it is.
func (s *Server) stagesOf(req *openai.ChatRequest, o chatparse.Options) (*stages, error) {
	grammar := req.Sampling.Grammar
	st := &stages{budget: math.MaxInt, parse: chatparse.Options{Reasoning: s.cfg.ReasoningParser, Prompt: o.Prompt}}
	if grammar.Kind != "" && o.Tools != chatparse.JSONCalls {
		st.parse.Tools, st.parse.Functions = o.Tools, o.Functions
	}
	if b := req.Reasoning.Budget; b != nil && s.cfg.ReasoningParser != "" {
		st.budget = *b
	}
	p := chatparse.New(st.parse)
	switch reasons := p.Thinking() || p.Undecided(); {
	case grammar.Kind != "" && (reasons || st.parse.Tools != ""):
		return st, s.engine.CheckGrammar(grammar)
	case reasons && st.budget < math.MaxInt:
		return st, nil
	}
	return nil, nil
}

// staged is a stream in two parts, of which the engine runs each as a request. The
// first has no grammar. The second begins where the budget or the grammar does: it
// goes on behind the tokens that stay, and those that end reasoning, which the
// engine's prefix cache has. If the engine takes no request any more by then, the
// stream ends with its error.
type staged struct {
	Stream
	engine Engine
	ctx    context.Context // of the request
	req    llm.Request
	parser *chatparse.Parser // nil: what comes is the answer, as it stands
	tools  bool              // it may be calls, which have no grammar
	left   int               // tokens of the budget

	ready  []llm.Event // to be read
	held   []llm.Event // events that may not stay
	ids    []int32     // the tokens of both
	stay   int         // those that stay
	behind bool        // the second request has begun
	last   llm.Event   // of the first one
}

// startStream starts a request, or its first part.
func (s *Server) startStream(ctx context.Context, j job) (Stream, error) {
	if j.stages == nil {
		return s.engine.Stream(ctx, j.req)
	}
	t := &staged{engine: s.engine, ctx: ctx, req: j.req, parser: chatparse.New(j.stages.parse), tools: j.stages.parse.Tools != "", left: j.stages.budget}
	t.last.Usage.PromptTokens = len(j.req.TokenIDs)
	if t.spent() {
		if err := t.goOn(chatparse.ThinkingEnd); err != nil || t.behind {
			return t, err
		}
	}
	first := j.req
	first.Params.Grammar = llm.Grammar{}
	var err error
	t.Stream, err = s.engine.Stream(ctx, first)
	return t, err
}

// spent tells whether reasoning has used up its budget.
func (t *staged) spent() bool { return t.parser.Thinking() && t.left <= 0 }

// Next implements Stream.
func (t *staged) Next(ctx context.Context) (llm.Event, error) {
	for len(t.ready) == 0 {
		ev, err := t.Stream.Next(ctx)
		switch {
		case err != nil:
			return ev, err
		case t.behind:
			return t.continued(ev), nil
		case t.parser == nil:
			return ev, nil
		}
		if err := t.take(ev); err != nil {
			return llm.Event{}, err
		}
	}
	ev := t.ready[0]
	t.ready = t.ready[1:]
	return ev, nil
}

// take looks at an event of the first request.
func (t *staged) take(ev llm.Event) error {
	thought := t.parser.Thinking()
	parts := t.parser.Push(ev.Text)
	if ev.HasToken {
		t.ids = append(t.ids, ev.Token)
	}
	t.held, t.last = append(t.held, ev), ev
	grammar := t.req.Params.Grammar.Kind != ""
	if thought || t.parser.Thinking() || !grammar {
		t.keep()
	}
	if thought {
		t.left--
	}
	ended := ev.Finish == llm.FinishStop || ev.Finish == llm.FinishLength
	switch {
	case ev.Finish != "" && (!ended || t.parser.Thinking() || !grammar), has(parts, chatparse.CallBegin):
		t.free()
	case t.spent():
		return t.goOn(chatparse.ThinkingEnd)
	case t.parser.Thinking() || t.parser.Undecided() && !ended:
	case !grammar:
		t.free()
	case ended || !t.tools || has(parts, chatparse.Content):
		gap := ""
		if t.stay > 0 {
			gap = chatparse.ThinkingGap
		}
		return t.goOn(gap)
	}
	return nil
}

func has(parts []chatparse.Event, kind chatparse.Kind) bool {
	return slices.ContainsFunc(parts, func(ev chatparse.Event) bool { return ev.Kind == kind })
}

// keep lets out what was held.
func (t *staged) keep() {
	t.ready, t.held, t.stay = append(t.ready, t.held...), nil, len(t.ids)
}

// free lets the first request go on to its end.
func (t *staged) free() {
	t.keep()
	t.parser = nil
}

// goOn begins the second request behind the tokens that stay and a text, unless
// there is no room for it: then the first one has not much room either.
func (t *staged) goOn(text string) error {
	var forced []int32
	var err error
	if text != "" {
		if forced, err = t.engine.Encode(text, false); err != nil {
			return err
		}
	}
	used := t.stay + len(forced)
	next := t.req
	next.TokenIDs = slices.Concat(t.req.TokenIDs, t.ids[:t.stay], forced)
	next.Params.MaxTokens -= used
	next.Params.MinTokens = max(next.Params.MinTokens-used, 0)
	if next.Params.MaxTokens < 1 || len(next.TokenIDs) >= t.engine.Info().MaxSeqLen {
		t.free()
		return nil
	}
	t.Close()
	t.parser, t.held, t.ids, t.behind = nil, nil, t.ids[:t.stay], true
	for _, id := range forced {
		t.force(id, text)
		text = ""
	}
	t.Stream, err = t.engine.Stream(t.ctx, next)
	return err
}

// force makes an event of a token that the model has not chosen.
func (t *staged) force(id int32, text string) {
	ev := llm.Event{Token: id, HasToken: true, Text: text, Usage: t.last.Usage, Begun: t.last.Begun}
	t.ids = append(t.ids, id)
	ev.Usage.CompletionTokens = len(t.ids)
	t.ready = append(t.ready, ev)
}

// continued makes an event of the second request one of the whole.
func (t *staged) continued(ev llm.Event) llm.Event {
	tokens := len(t.ids) + ev.Usage.CompletionTokens
	ev.Usage = t.last.Usage
	ev.Usage.CompletionTokens = tokens
	if !t.last.Begun.IsZero() {
		ev.Begun = t.last.Begun
	}
	return ev
}

// Close implements Stream.
func (t *staged) Close() {
	if t.Stream != nil {
		t.Stream.Close()
		t.Stream = nil
	}
}

package server

import (
	"context"
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// thinking is what a request asks of its reasoning, if it reasons.
type thinking struct {
	tokens int    // of reasoning at most
	format string // how the model writes it
	prompt string // the end of the prompt
}

// thinkingOf returns nil if reasoning needs no care: it has no limit, and what
// follows needs no grammar.
func (s *Server) thinkingOf(req *openai.ChatRequest, o chatparse.Options) (*thinking, error) {
	grammar := req.Sampling.Grammar
	if s.cfg.ReasoningParser == "" || req.Reasoning.Budget == nil && grammar.Kind == "" {
		return nil, nil
	}
	t := &thinking{tokens: math.MaxInt, format: s.cfg.ReasoningParser, prompt: o.Prompt}
	if req.Reasoning.Budget != nil {
		t.tokens = *req.Reasoning.Budget
	}
	if grammar.Kind == "" {
		return t, nil
	}
	return t, s.engine.CheckGrammar(grammar)
}

// reasoned is a stream in two parts, of which the engine runs each as a request:
// reasoning, which has no grammar and ends with its budget, and the answer. The
// second begins where a budget or a grammar does: it goes on behind the tokens so
// far and those that end reasoning, which the engine's prefix cache has. If the
// engine takes no request any more by then, the stream ends with its error.
type reasoned struct {
	Stream
	engine Engine
	ctx    context.Context // of the request
	req    llm.Request
	parser *chatparse.Parser // nil: the answer has begun
	left   int               // tokens of the budget
	mused  bool              // there is reasoning

	ready  []llm.Event // to be read
	ids    []int32     // the tokens before the second request
	behind bool        // it has begun
	last   llm.Event   // of the first one
}

// startStream starts a request, or the first of its parts.
func (s *Server) startStream(ctx context.Context, j job) (Stream, error) {
	if j.thinking == nil {
		return s.engine.Stream(ctx, j.req)
	}
	o := chatparse.Options{Reasoning: j.thinking.format, Prompt: j.thinking.prompt}
	r := &reasoned{engine: s.engine, ctx: ctx, req: j.req, parser: chatparse.New(o), left: j.thinking.tokens}
	if !r.parser.Thinking() && !r.parser.Undecided() {
		return s.engine.Stream(ctx, j.req)
	}
	r.last.Usage.PromptTokens = len(j.req.TokenIDs)
	if r.spent() {
		if err := r.goOn(chatparse.ThinkingEnd); err != nil || r.behind {
			return r, err
		}
	}
	first := j.req
	first.Params.Grammar = llm.Grammar{}
	var err error
	r.Stream, err = s.engine.Stream(ctx, first)
	return r, err
}

func (r *reasoned) spent() bool { return r.parser.Thinking() && r.left <= 0 }

// Next implements Stream.
func (r *reasoned) Next(ctx context.Context) (llm.Event, error) {
	for {
		if !r.waits() && len(r.ready) > 0 {
			ev := r.ready[0]
			r.ready = r.ready[1:]
			return ev, nil
		}
		ev, err := r.Stream.Next(ctx)
		switch {
		case err != nil:
			return ev, err
		case r.behind:
			return r.continued(ev), nil
		case r.parser == nil:
			return ev, nil
		}
		if err := r.take(ev); err != nil {
			return llm.Event{}, err
		}
	}
}

// waits tells whether events are held back: an answer that needs a grammar and
// turns out to have no reasoning is begun anew.
func (r *reasoned) waits() bool {
	return r.parser != nil && r.parser.Undecided() && r.req.Params.Grammar.Kind != ""
}

// take looks at an event of the first request.
func (r *reasoned) take(ev llm.Event) error {
	thought := r.parser.Thinking()
	r.parser.Push(ev.Text)
	thinks := r.parser.Thinking()
	r.mused = r.mused || thinks
	if thought {
		r.left--
	}
	grammar := r.req.Params.Grammar.Kind != ""
	ended := !thinks && !r.parser.Undecided() || ev.Finish == llm.FinishStop || ev.Finish == llm.FinishLength
	switch {
	case ended && grammar && !r.mused:
		r.ready, r.ids = nil, nil
		return r.goOn("")
	case ev.Finish != "":
		r.ready, r.parser = append(r.ready, ev), nil
		return nil
	}
	r.ready, r.ids, r.last = append(r.ready, ev), append(r.ids, ev.Token), ev
	switch {
	case r.spent():
		return r.goOn(chatparse.ThinkingEnd)
	case ended && grammar:
		return r.goOn(chatparse.ThinkingGap)
	case ended:
		r.parser = nil
	}
	return nil
}

// goOn begins the second request behind a text, unless there is no room for it:
// then the first one has not much room either.
func (r *reasoned) goOn(text string) error {
	forced, err := r.encode(text)
	if err != nil {
		return err
	}
	used := len(r.ids) + len(forced)
	next := r.req
	next.TokenIDs = slices.Concat(r.req.TokenIDs, r.ids, forced)
	next.Params.MaxTokens -= used
	next.Params.MinTokens = max(next.Params.MinTokens-used, 0)
	if next.Params.MaxTokens < 1 || len(next.TokenIDs) >= r.engine.Info().MaxSeqLen {
		r.parser = nil
		return nil
	}
	r.Close()
	r.parser, r.behind = nil, true
	for _, id := range forced {
		r.force(id, text)
		text = ""
	}
	r.Stream, err = r.engine.Stream(r.ctx, next)
	return err
}

func (r *reasoned) encode(text string) ([]int32, error) {
	if text == "" {
		return nil, nil
	}
	return r.engine.Encode(text, false)
}

// force makes an event of a token that the model has not chosen.
func (r *reasoned) force(id int32, text string) {
	ev := llm.Event{Token: id, HasToken: true, Text: text, Usage: r.last.Usage, Begun: r.last.Begun}
	r.ids = append(r.ids, id)
	ev.Usage.CompletionTokens = len(r.ids)
	r.ready = append(r.ready, ev)
}

// continued makes an event of the second request one of the whole.
func (r *reasoned) continued(ev llm.Event) llm.Event {
	tokens := len(r.ids) + ev.Usage.CompletionTokens
	ev.Usage = r.last.Usage
	ev.Usage.CompletionTokens = tokens
	if !r.last.Begun.IsZero() {
		ev.Begun = r.last.Begun
	}
	return ev
}

// Close implements Stream.
func (r *reasoned) Close() {
	if r.Stream != nil {
		r.Stream.Close()
		r.Stream = nil
	}
}

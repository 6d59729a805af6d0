package server

import (
	"context"
	"math"
	"slices"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// budget returns what bounds the reasoning of a chat; nil if nothing does.
func (s *Server) budget(req *openai.ChatRequest, o chatparse.Options) *thinking {
	if req.Reasoning.Budget == nil || s.cfg.ReasoningParser == "" {
		return nil
	}
	return &thinking{tokens: *req.Reasoning.Budget, format: s.cfg.ReasoningParser, prompt: o.Prompt}
}

// thinking is a budget of reasoning.
type thinking struct {
	tokens int    // of it at most
	format string // how the model writes it
	prompt string // the end of the prompt
}

// bounded is a stream whose reasoning ends with its budget. It then stops the
// request, and goes on with another one, behind the tokens so far and those that
// end reasoning; what the engine has computed of them is in its prefix cache. To
// the engine that is a new request: if it takes none any more, the stream ends with
// its error.
type bounded struct {
	Stream // nil: the request is to go on
	engine Engine
	ctx    context.Context // of the request
	req    llm.Request
	parser *chatparse.Parser
	left   int // tokens of the budget

	ids    []int32   // the tokens before the request went on
	forced []int32   // the last of these, if they are still to be read
	text   string    // of them
	last   llm.Event // of the first request
}

func (s *Server) startStream(ctx context.Context, j job) (Stream, error) {
	if j.thinking == nil {
		return s.engine.Stream(ctx, j.req)
	}
	o := chatparse.Options{Reasoning: j.thinking.format, Prompt: j.thinking.prompt}
	b := &bounded{engine: s.engine, ctx: ctx, req: j.req, parser: chatparse.New(o), left: j.thinking.tokens}
	b.last.Usage.PromptTokens = len(j.req.TokenIDs)
	if b.spent() {
		if err := b.goOn(); err != nil || b.Stream != nil {
			return b, err
		}
	}
	var err error
	b.Stream, err = s.engine.Stream(ctx, j.req)
	return b, err
}

func (b *bounded) spent() bool { return b.parser != nil && b.parser.Thinking() && b.left <= 0 }

// Next implements Stream.
func (b *bounded) Next(ctx context.Context) (llm.Event, error) {
	if b.spent() {
		if err := b.goOn(); err != nil {
			return llm.Event{}, err
		}
	}
	if len(b.forced) > 0 {
		return b.force(), nil
	}
	ev, err := b.Stream.Next(ctx)
	switch {
	case err != nil:
		return ev, err
	case b.parser == nil:
		return b.continued(ev), nil
	}
	b.last = ev
	if !ev.HasToken || ev.Finish != "" {
		return ev, nil
	}
	thought := b.parser.Thinking()
	b.parser.Push(ev.Text)
	if thought {
		b.left--
	}
	b.ids = append(b.ids, ev.Token)
	return ev, nil
}

// goOn starts the second request, unless there is no room for it: then the first
// one has not much room either.
func (b *bounded) goOn() error {
	forced, err := b.engine.Encode(chatparse.ThinkingEnd, false)
	if err != nil {
		return err
	}
	used := len(b.ids) + len(forced)
	next := b.req
	next.TokenIDs = slices.Concat(b.req.TokenIDs, b.ids, forced)
	next.Params.MaxTokens -= used
	next.Params.MinTokens = max(next.Params.MinTokens-used, 0)
	if next.Params.MaxTokens < 1 || len(next.TokenIDs) >= b.engine.Info().MaxSeqLen {
		b.left = math.MaxInt
		return nil
	}
	b.Close()
	b.parser, b.forced, b.text = nil, forced, chatparse.ThinkingEnd
	b.Stream, err = b.engine.Stream(b.ctx, next)
	return err
}

// force is the event of a token that the model has not chosen.
func (b *bounded) force() llm.Event {
	ev := llm.Event{Token: b.forced[0], HasToken: true, Text: b.text, Usage: b.last.Usage, Begun: b.last.Begun}
	b.ids, b.forced, b.text = append(b.ids, b.forced[0]), b.forced[1:], ""
	ev.Usage.CompletionTokens = len(b.ids)
	return ev
}

// continued makes an event of the second request one of the whole.
func (b *bounded) continued(ev llm.Event) llm.Event {
	tokens := len(b.ids) + ev.Usage.CompletionTokens
	ev.Usage = b.last.Usage
	ev.Usage.CompletionTokens = tokens
	if !b.last.Begun.IsZero() {
		ev.Begun = b.last.Begun
	}
	return ev
}

// Close implements Stream.
func (b *bounded) Close() {
	if b.Stream != nil {
		b.Stream.Close()
		b.Stream = nil
	}
}

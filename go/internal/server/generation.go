package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// generating makes a handler of one that answers a body with generated text,
// and returns an error only if nothing has been sent.
func (s *Server) generating(handle func(w http.ResponseWriter, r *http.Request, body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.now() != ready {
			s.fail(w, s.unavailable())
			return
		}
		body, err := s.readBody(w, r)
		if err == nil {
			err = handle(w, r, body)
		}
		if err != nil {
			s.fail(w, err)
		}
	}
}

func (s *Server) unavailable() error {
	if s.now() == failed {
		return llm.ErrClosed
	}
	return llm.ErrDraining
}

// task is what a request for text asks of the engine.
type task struct {
	jobs   []job
	stream bool
	answer answer
	model  string // that it is answered under
}

// answering makes a handler of what reads a request for text.
func (s *Server) answering(read func(body []byte) (*task, error)) http.HandlerFunc {
	return s.generating(func(w http.ResponseWriter, r *http.Request, body []byte) error {
		t, err := read(body)
		if err != nil {
			return err
		}
		return s.answer(w, r, t)
	})
}

// sampling returns p with the model's defaults.
func (s *Server) sampling(p llm.SamplingParams) llm.SamplingParams {
	s.engine.Info().Defaults.Apply(&p)
	return p
}

// called returns the name that a request is answered under. Any name is served,
// as in mini-sglang, unless Config.StrictModel says otherwise.
func (s *Server) called(name string) (string, error) {
	switch served := s.modelName(); {
	case name == "":
		return served, nil
	case s.cfg.StrictModel && name != served:
		return "", openai.Errorf(http.StatusNotFound, "there is no model %q here, only %q", name, served).
			WithParam("model").WithCode(openai.CodeModelNotFound)
	}
	return name, nil
}

// encode returns a prompt's token ids, if they fit.
func (s *Server) encode(param string, p openai.Prompt) ([]int32, error) {
	ids := p.TokenIDs
	if ids == nil {
		var err error
		if ids, err = s.engine.Encode(p.Text, true); err != nil {
			return nil, openai.Invalid(param, "%v", err)
		}
	}
	return ids, s.checkLength(param, ids)
}

func (s *Server) checkLength(param string, ids []int32) error {
	limit := s.engine.Info().MaxSeqLen
	if len(ids) < limit {
		return nil
	}
	return openai.Invalid(param, "%d tokens are too many: prompt and answer together may have at most %d", len(ids), limit).
		WithCode(openai.CodeContextLength)
}

// jobsOf returns a prompt's requests to the engine, one for each choice.
func jobsOf(g *openai.Generation, ids []int32, param, rid string) []job {
	jobs := make([]job, g.N)
	for i := range jobs {
		jobs[i] = job{
			req:   llm.Request{TokenIDs: ids, Params: withSeed(g.Sampling, i), Stop: g.Stop, StopTokenIDs: g.StopTokenIDs},
			rid:   rid,
			param: param,
		}
	}
	return jobs
}

// withSeed gives each choice of a prompt a seed of its own. The first has the
// request's, so that it is what n = 1 gives.
func withSeed(p llm.SamplingParams, choice int) llm.SamplingParams {
	const golden = 0x9e3779b97f4a7c15 // spreads the seeds over all 64 bits
	if p.Seed != nil && choice > 0 {
		seed := *p.Seed + uint64(choice)*golden
		p.Seed = &seed
	}
	return p
}

// answer runs a task and sends what it makes of the events.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, t *task) error {
	ctx, cancel := s.deadline(s.tracer.Parent(r.Context(), r.Header))
	defer cancel()
	g, err := s.start(ctx, t.jobs)
	if err != nil {
		return err
	}
	defer g.close()
	if t.stream {
		return s.stream(ctx, w, g, t.answer)
	}
	for g.left > 0 {
		i, ev, err := g.next(ctx)
		if err != nil {
			return err
		}
		t.answer.add(i, ev)
	}
	s.writeJSON(w, http.StatusOK, t.answer.document())
	return nil
}

// deadline bounds the time of a request, if Config says so.
func (s *Server) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.cfg.RequestTimeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.cfg.RequestTimeout)
}

// stream answers with server-sent events.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, g *group, a answer) error {
	i, ev, err := g.next(ctx)
	if err != nil {
		return err
	}
	out := s.newEventStream(w)
	for {
		a.add(i, ev)
		if err := sendAll(out, a.events(i, ev)); err != nil {
			s.log.Debug("a client went away", "error", err)
			return nil
		}
		if g.left == 0 {
			break
		}
		if i, ev, err = g.next(ctx); err != nil {
			s.endWithError(out, err)
			return nil
		}
	}
	if err := out.done(); err != nil {
		s.log.Debug("a client went away", "error", err)
	}
	return nil
}

// endWithError tells the reader of a stream that has begun why it ends early.
func (s *Server) endWithError(out *eventStream, err error) {
	if errors.Is(err, context.Canceled) { // the reader is gone
		return
	}
	if err := out.send(openai.ErrorBody{Error: s.apiError(err)}); err != nil {
		s.log.Debug("a client went away", "error", err)
	}
}

func sendAll(out *eventStream, events []any) error {
	for _, event := range events {
		if err := out.send(event); err != nil {
			return err
		}
	}
	return nil
}

func randomID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

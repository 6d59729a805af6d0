package server

import (
	"time"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// generate reads a request to /generate, in sglang's form or in mini-sglang's.
func (s *Server) generate(body []byte) (*task, error) {
	req, err := openai.ParseGenerate(body, s.sampling(openai.DefaultSampling()))
	if err != nil {
		return nil, err
	}
	jobs, err := s.nativeJobs(req)
	if err != nil {
		return nil, err
	}
	t := &task{jobs: jobs, stream: req.Stream, model: s.modelName()}
	counts := newTally(1, len(jobs))
	if req.Plain {
		t.answer = &plainAnswer{counts}
	} else {
		t.answer = &nativeAnswer{
			tally: counts, jobs: jobs, many: req.Many, begin: time.Now(),
			logprobs: nativeLogprobs{names: s.engine.TokenBytes, texts: req.LogprobTexts},
		}
	}
	return t, nil
}

func (s *Server) nativeJobs(req *openai.GenerateRequest) ([]job, error) {
	var jobs []job
	for i, p := range req.Prompts {
		member := "text"
		switch {
		case req.Plain:
			member = "prompt"
		case p.TokenIDs != nil:
			member = "input_ids"
		}
		param := pathOf(member, i, len(req.Prompts) > 1)
		ids, err := s.encode(param, p.Prompt)
		if err != nil {
			return nil, err
		}
		if start := p.Sampling.PromptLogprobs; start != nil && *start >= len(ids) {
			return nil, openai.Invalid(pathOf("logprob_start_len", i, len(req.Prompts) > 1),
				"must be below the number of the prompt's tokens, %d, got %d", len(ids), *start)
		}
		g := openai.Generation{Sampling: p.Sampling, N: p.N, Stop: p.Stop, StopTokenIDs: p.StopTokenIDs}
		for _, j := range jobsOf(&g, ids, param, p.RID) {
			if j.rid == "" {
				j.rid = s.newID()
			}
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// nativeAnswer builds what sglang's /generate answers with: one event for each
// of the engine's, with all of the text so far.
type nativeAnswer struct {
	tally
	jobs  []job
	many  bool
	begin time.Time

	logprobs nativeLogprobs
}

func (a *nativeAnswer) document() any {
	list := make([]openai.GenerateResponse, len(a.choices))
	for i := range a.choices {
		list[i] = a.response(i)
		list[i].OutputIDs = a.choices[i].ids
	}
	if a.many {
		return list
	}
	return list[0]
}

func (a *nativeAnswer) events(i int, _ llm.Event) []any {
	event := a.response(i)
	if a.many {
		event.Index = &i
	}
	return []any{event}
}

func (a *nativeAnswer) response(i int) openai.GenerateResponse {
	c := &a.choices[i]
	meta := openai.GenerateMeta{
		ID: a.jobs[i].rid, PromptTokens: c.last.Usage.PromptTokens,
		CompletionTokens: c.last.Usage.CompletionTokens, CachedTokens: c.last.Usage.CachedTokens,
	}
	if c.last.Finish != "" {
		latency := time.Since(a.begin).Seconds()
		meta.Latency = &latency
		meta.FinishReason = nativeFinish(c.last)
	}
	a.logprobs.fill(&meta, a.jobs[i].req, c)
	return openai.GenerateResponse{Text: c.text.String(), Meta: meta}
}

func nativeFinish(ev llm.Event) *openai.NativeFinish {
	finish := &openai.NativeFinish{Type: string(ev.Finish), Matched: ev.Stop}
	switch ev.Finish {
	case llm.FinishLength:
		finish.Length = ev.Usage.CompletionTokens
	case llm.FinishAbort:
		finish.Message = errAborted.Error()
	}
	return finish
}

// plainAnswer is mini-sglang's: an event for each token that holds nothing but
// its text. A text of several lines takes several "data" fields, as the standard
// has it, so that it can't end the event.
type plainAnswer struct{ tally }

func (*plainAnswer) document() any { return nil }

func (*plainAnswer) events(_ int, ev llm.Event) []any {
	if !ev.HasToken && ev.Text == "" {
		return nil
	}
	return []any{plainText(ev.Text)}
}

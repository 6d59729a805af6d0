package server

import (
	"fmt"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// completions reads a request to /v1/completions.
func (s *Server) completions(body []byte) (*task, error) {
	req, err := openai.ParseCompletion(body, s.sampling(openai.DefaultCompletion()))
	if err != nil {
		return nil, err
	}
	if req.Model, err = s.called(req.Model); err != nil {
		return nil, err
	}
	a := &textAnswer{
		tally: newTally(req.N, req.N*len(req.Prompts)), req: req, names: s.engine.TokenBytes,
		id: "cmpl-" + s.newID(), created: time.Now().Unix(),
	}
	var jobs []job
	for i, prompt := range req.Prompts {
		param := pathOf("prompt", i, req.Many)
		ids, err := s.encode(param, prompt)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, jobsOf(&req.Generation, ids, param, a.id)...)
		if !req.Echo {
			continue
		}
		text := prompt.Text
		if prompt.TokenIDs != nil {
			if text, err = s.engine.Decode(prompt.TokenIDs, false); err != nil {
				return nil, openai.Invalid(param, "%v", err)
			}
		}
		a.echo = append(a.echo, text)
	}
	a.jobs = jobs
	return &task{jobs: jobs, stream: req.Stream, answer: a, model: req.Model}, nil
}

// pathOf is where prompt i is in a request.
func pathOf(member string, i int, many bool) string {
	if !many {
		return member
	}
	return fmt.Sprintf("%s[%d]", member, i)
}

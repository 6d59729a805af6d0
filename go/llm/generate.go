package llm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/minisgl/minisgl/go/internal/core"
)

// progressInterval is the time between two calls of Generate's callback.
const progressInterval = 100 * time.Millisecond

// Generate runs requests together and returns their outputs in the same order.
// Nothing is started if one of them is invalid; the InvalidError then names it,
// as in "prompts[3]". When ctx ends, all are aborted and ctx's error is
// returned. progress may be nil; it is called from this goroutine.
func (l *LLM) Generate(ctx context.Context, reqs []Request, progress func(Progress)) ([]Output, error) {
	j := &job{start: time.Now(), outputs: make([]Output, len(reqs)), index: make(map[core.UID]int, len(reqs)), done: make(chan struct{})}
	prepared := make([]*core.Req, len(reqs))
	for i, req := range reqs {
		if len(req.Stop)+len(req.StopTokenIDs) > 0 {
			return nil, atIndex(core.Invalid("stop", "only a stream can stop early"), i)
		}
		r, err := l.prepare(req)
		if err != nil {
			return nil, atIndex(err, i)
		}
		prepared[i] = r
		j.index[r.UID] = i
		j.outputs[i].Usage.PromptTokens = r.PromptLen
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	if !l.send(command{kind: addReqs, reqs: prepared, sink: j}) {
		return nil, ErrClosed
	}
	if err := l.await(ctx, j, progress); err != nil {
		return nil, err
	}
	for i := range j.outputs {
		text, err := l.tok.Decode(j.outputs[i].TokenIDs, false)
		if err != nil {
			return nil, err
		}
		j.outputs[i].Text = text
	}
	return j.outputs, nil
}

// await waits for a job's end, or aborts it with the context and then waits.
func (l *LLM) await(ctx context.Context, j *job, progress func(Progress)) error {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case <-j.done:
			if progress != nil {
				progress(j.progress())
			}
			return j.failure(ctx)
		case <-tick.C:
			if progress != nil {
				progress(j.progress())
			}
		case <-cancelled:
			cancelled = nil
			l.send(command{kind: abortReqs, uids: j.uids()})
		}
	}
}

// atIndex tells which of Generate's requests an InvalidError is about.
func atIndex(err error, i int) error {
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		field := fmt.Sprintf("sampling_params[%d].%s", i, invalid.Field)
		if invalid.Field == "prompt" {
			field = fmt.Sprintf("prompts[%d]", i)
		}
		return &InvalidError{Field: field, Message: invalid.Message}
	}
	return err
}

// job collects the outputs of a Generate call.
type job struct {
	start time.Time
	index map[core.UID]int // not changed once the job has started
	done  chan struct{}

	mu       sync.Mutex
	outputs  []Output
	finished int
	tokens   int
	prompts  int
	err      error
}

// push implements sink.
func (j *job) push(out output) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o := &j.outputs[j.index[out.Req.UID]]
	prompt, token := splitScores(out)
	o.PromptLogprobs = append(o.PromptLogprobs, prompt...)
	if token != nil {
		o.Logprobs = append(o.Logprobs, *token)
	}
	if out.HasToken {
		if len(o.TokenIDs) == 0 {
			o.TTFT = time.Since(j.start)
			j.prompts += o.Usage.PromptTokens
		}
		o.TokenIDs = append(o.TokenIDs, out.Token)
		o.Usage.CompletionTokens++
		o.Usage.CachedTokens = out.Req.CachedLen
		j.tokens++
	}
	if out.Finish == "" {
		return
	}
	o.Finish = out.Finish
	o.E2E = time.Since(j.start)
	if out.err != nil && j.err == nil {
		j.err = out.err
	}
	if j.finished++; j.finished == len(j.outputs) {
		close(j.done)
	}
}

// splitScores tells an output's log-probabilities of prompt tokens from that of
// its token; one of a token that isn't reported is left out.
func splitScores(out output) (prompt []TokenLogprob, token *TokenLogprob) {
	for _, s := range out.scores {
		switch {
		case s.Prompt:
			prompt = append(prompt, s.TokenLogprob)
		case out.HasToken:
			token = &s.TokenLogprob
		}
	}
	return prompt, token
}

func (j *job) progress() Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Progress{Requests: len(j.outputs), DoneRequests: j.finished, PromptTokens: j.prompts, CompletionTokens: j.tokens}
}

// failure is why a finished job has no result, if it has none.
func (j *job) failure(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case j.err != nil:
		return j.err
	}
	for _, o := range j.outputs {
		if o.Finish == FinishAbort {
			return ErrClosed
		}
	}
	return nil
}

func (j *job) uids() []core.UID {
	uids := make([]core.UID, 0, len(j.index))
	for uid := range j.index {
		uids = append(uids, uid)
	}
	return uids
}

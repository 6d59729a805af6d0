// Package native is the engine as gopy can bind it: handles, JSON and errors
// that say of which kind they are. It is the module behind the Python package
// and holds no rules of its own.
//
// Whatever takes time is a job: a function starts it and returns its number,
// Wait polls it, Result takes what it gave. So the Python side can react to
// signals between two polls, and no call holds Python's lock while it waits.
//
// Text travels inside JSON, because a plain string argument could neither hold
// NUL nor broken UTF-16. Every error's text is a JSON object, see errors.go.
//
// A function without a result returns false: of one that returns an error alone
// gopy makes a string, which nobody frees.
package native

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/llm"
)

// OpenEngine starts to load a model; options is llm.Config as JSON. The job's
// result is the engine's handle, for the functions below that take an engine.
func OpenEngine(options string) (job int64, err error) {
	defer guard(&err)
	var cfg llm.Config
	if err := decode(options, &cfg); err != nil {
		return 0, err
	}
	cfg.Logger = newLogger()
	return start(func(ctx context.Context, _ *task) (any, error) {
		e, err := llm.New(ctx, cfg)
		if err != nil {
			return nil, asModelError(err)
		}
		return engines.add(newEngine(e)), nil
	}, func(result any) {
		_, _ = CloseEngine(result.(int64)) // nobody is left to tell
	}), nil
}

// CloseEngine aborts what runs on an engine and frees it. A second call does
// nothing.
func CloseEngine(engine int64) (none bool, err error) {
	defer guard(&err)
	if e, ok := engines.remove(engine); ok {
		return none, e.close()
	}
	return none, nil
}

// Generate starts to generate for a list of requests (see request). The job's
// result is the list of outputs (see output), in the order of the requests.
func Generate(engine int64, requests string) (job int64, err error) {
	defer guard(&err)
	return startGenerate(engine, requests, nil)
}

// startGenerate starts a job for Generate, or with a hook for GenerateHooked.
func startGenerate(engine int64, requests string, h *hook) (job int64, err error) {
	e, err := engineOf(engine)
	if err != nil {
		return 0, err
	}
	var list []request
	if err := decode(requests, &list); err != nil {
		return 0, err
	}
	generate := e.Generate
	if h != nil {
		generate = func(ctx context.Context, reqs []llm.Request, progress func(llm.Progress)) ([]llm.Output, error) {
			return e.generateHooked(ctx, h, reqs, progress)
		}
	}
	return startTask(&task{hook: h}, func(ctx context.Context, t *task) (any, error) {
		reqs, err := resolve(e.LLM, list)
		if err != nil {
			return nil, err
		}
		outs, err := generate(ctx, reqs, t.setProgress)
		if err != nil {
			return nil, withNames(err, list)
		}
		return newOutputs(outs, reqs, list), nil
	}), nil
}

// Wait waits until a job has ended, at most timeoutMs milliseconds, and returns
// its status (see status).
func Wait(job, timeoutMs int64) (out string, err error) {
	defer guard(&err)
	t, err := taskOf(job)
	if err != nil {
		return "", err
	}
	select {
	case <-t.done:
	case <-time.After(time.Duration(timeoutMs) * time.Millisecond):
	}
	return encode(t.status())
}

// Cancel asks a job to end early. Its status tells when it has.
func Cancel(job int64) (none bool, err error) {
	defer guard(&err)
	t, err := taskOf(job)
	if err != nil {
		return none, err
	}
	t.cancel()
	return none, nil
}

// Result takes the result of a job that has ended; the job's number means
// nothing afterwards.
func Result(job int64) (out string, err error) {
	defer guard(&err)
	t, err := taskOf(job)
	if err != nil {
		return "", err
	}
	if !t.ended() {
		return "", fail(kindInternal, "job %d is still running", job)
	}
	tasks.remove(job)
	if t.err != nil {
		return "", t.err
	}
	return encode(t.result)
}

// Forget cancels a job whose result nobody wants.
func Forget(job int64) (none bool, err error) {
	defer guard(&err)
	if t, ok := tasks.remove(job); ok {
		t.forget()
	}
	return none, nil
}

// Info describes an engine's model (see info).
func Info(engine int64) (out string, err error) {
	defer guard(&err)
	e, err := engineOf(engine)
	if err != nil {
		return "", err
	}
	return encode(newInfo(e.LLM))
}

// Stats returns what an engine has done so far (see stats).
func Stats(engine int64) (out string, err error) {
	defer guard(&err)
	e, err := engineOf(engine)
	if err != nil {
		return "", err
	}
	return encode(newStats(e.Stats()))
}

// PrefillBudget returns how many prompt tokens a batch of an engine may compute.
func PrefillBudget(engine int64) (tokens int64, err error) {
	defer guard(&err)
	e, err := engineOf(engine)
	if err != nil {
		return 0, err
	}
	return int64(e.MaxExtendTokens()), nil
}

// SetPrefillBudget changes what PrefillBudget returns, from the next batch on.
func SetPrefillBudget(engine, tokens int64) (none bool, err error) {
	defer guard(&err)
	e, err := engineOf(engine)
	if err != nil {
		return none, err
	}
	return none, e.SetMaxExtendTokens(int(tokens))
}

// decode reads one JSON value and nothing else; unknown fields are errors.
func decode(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fail(kindType, "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return fail(kindType, "more than one JSON value")
	}
	return nil
}

func encode(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

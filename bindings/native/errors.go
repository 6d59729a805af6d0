package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"

	"github.com/minisgl/minisgl/go/llm"
)

// The kinds of errors; python/minisgl/_errors.py maps each to an exception.
const (
	kindInvalid    = "invalid"    // a value that can't be used: ValueError
	kindType       = "type"       // JSON that doesn't fit: TypeError
	kindNotFound   = "not_found"  // FileNotFoundError
	kindPermission = "permission" // PermissionError
	kindModel      = "model"      // a model's files can't be used: ValueError
	kindClosed     = "closed"     // the engine is gone: RuntimeError
	kindCanceled   = "canceled"   // the job was cancelled: RuntimeError
	kindInternal   = "internal"   // all else: RuntimeError
)

// kindError is an error as Python sees it: its text is JSON, because gopy keeps
// only an error's text.
type kindError struct {
	Kind    string `json:"kind"`
	Field   string `json:"field,omitempty"` // what is invalid, "prompts[3]"
	Message string `json:"message"`
}

func (e *kindError) Error() string {
	data, err := json.Marshal(e)
	if err != nil { // can't be: the fields are strings
		return e.Message
	}
	return string(data)
}

func fail(kind, format string, args ...any) *kindError {
	return &kindError{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// shutDown is the error of what uses an engine after its end.
func shutDown() *kindError { return fail(kindClosed, "the engine was shut down") }

// guard ends every exported function: a panic must not cross into Python, where
// it would end the process, and an error must say of which kind it is.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = panicError(p)
	}
	if *err != nil {
		*err = classify(*err)
	}
}

func panicError(p any) *kindError {
	return fail(kindInternal, "panic in the engine: %v\n%s", p, debug.Stack())
}

// classify finds an error's kind.
func classify(err error) *kindError {
	var known *kindError
	var invalid *llm.InvalidError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, fs.ErrNotExist):
		return fail(kindNotFound, "%v", err)
	case errors.Is(err, fs.ErrPermission):
		return fail(kindPermission, "%v", err)
	case errors.As(err, &invalid):
		return &kindError{Kind: kindInvalid, Field: invalid.Field, Message: invalid.Message}
	case errors.Is(err, llm.ErrClosed): // as where the engine is gone already
		return shutDown()
	case errors.Is(err, llm.ErrDraining):
		return fail(kindClosed, "%v", err)
	case errors.Is(err, context.Canceled):
		return fail(kindCanceled, "%v", err)
	}
	return fail(kindInternal, "%v", err)
}

// asModelError gives an error of loading that has no kind of its own the kind of
// damaged or unsupported model files.
func asModelError(err error) error {
	known := classify(err)
	if known.Kind == kindInternal {
		known.Kind = kindModel
	}
	return known
}

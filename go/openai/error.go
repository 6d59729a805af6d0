package openai

import (
	"fmt"
	"net/http"
)

// Values of Error.Type.
const (
	TypeInvalidRequest = "invalid_request_error" // the caller's fault
	TypeServer         = "server_error"          // ours, or a matter of time
)

// Values of Error.Code.
const (
	CodeUnsupported   = "unsupported_parameter"
	CodeContextLength = "context_length_exceeded"
	CodeModelNotFound = "model_not_found"
)

// Error is OpenAI's error object, and the HTTP status it travels with.
type Error struct {
	Status  int     `json:"-"`
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // path of the field at fault, "messages[1].content"
	Code    any     `json:"code"`  // a string here; other servers send numbers too
}

// ErrorBody is the body of every answer that is an error, and the data of the
// event that ends a stream which failed.
type ErrorBody struct {
	Error *Error `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// WithCode sets the error's code.
func (e *Error) WithCode(code string) *Error {
	e.Code = code
	return e
}

// WithParam names the field at fault.
func (e *Error) WithParam(path string) *Error {
	e.Param = &path
	return e
}

// Errorf returns an error without param and code: type server_error if the
// status is 500 or above, else invalid_request_error.
func Errorf(status int, format string, args ...any) *Error {
	kind := TypeInvalidRequest
	if status >= http.StatusInternalServerError {
		kind = TypeServer
	}
	return &Error{Status: status, Message: fmt.Sprintf(format, args...), Type: kind}
}

// Invalid returns the error, of status 400, that the field at path is wrong.
// The message starts with the path.
func Invalid(path, format string, args ...any) *Error {
	return Errorf(http.StatusBadRequest, "%s: %s", path, fmt.Sprintf(format, args...)).WithParam(path)
}

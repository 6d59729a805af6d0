package openai

import "encoding/json"

// SocketVersion is the version of the messages.
const SocketVersion = 1

// Subprotocols of the handshake.
const (
	SocketProtocol  = "minisgl.v1"
	SocketKeyPrefix = "minisgl.key." // then the API key, in unpadded base64url
)

// Values of SocketCommand.Type and SocketEvent.Type.
const (
	SocketStart  = "start"
	SocketAbort  = "abort"
	SocketToken  = "token"
	SocketFinish = "finish"
	SocketError  = "error"
	SocketReject = "reject"
)

// Values of SocketCommand.API: which endpoint's requests and chunks are meant.
const (
	SocketChat        = "chat"        // /v1/chat/completions; the default
	SocketCompletions = "completions" // /v1/completions
	SocketGenerate    = "generate"    // /generate
)

// CodeTooManyRequests refuses a request on a connection that has too many.
const CodeTooManyRequests = "too_many_requests"

const maxSocketID = 128 // bytes

// SocketCommand is what a client of /ws/generate sends.
type SocketCommand struct {
	V       int             `json:"v"`
	Type    string          `json:"type"`              // start or abort
	ID      string          `json:"id"`                // 1 to 128 bytes
	API     string          `json:"api,omitempty"`     // of start
	Request json.RawMessage `json:"request,omitempty"` // of start: the body
}

// SocketEvent is what the server sends at /ws/generate.
type SocketEvent struct {
	V    int    `json:"v"`
	Type string `json:"type"`
	ID   string `json:"id"`
	Seq  int    `json:"seq"` // its number among the request's events; 0 in reject

	RequestID string `json:"request_id,omitempty"` // of start: what logs and /abort_request call it
	Model     string `json:"model,omitempty"`      // of start

	Chunk json.RawMessage `json:"chunk,omitempty"` // of token

	FinishReason string   `json:"finish_reason,omitempty"` // of finish: that of the first choice
	Usage        *Usage   `json:"usage,omitempty"`         // of finish: of all choices
	TTFT         *float64 `json:"ttft_ms,omitempty"`       // of finish: from the start to the first token, in the server
	E2E          *float64 `json:"e2e_ms,omitempty"`        // of finish

	Status int    `json:"status,omitempty"` // of error and reject: HTTP's number for it
	Error  *Error `json:"error,omitempty"`
}

// ParseSocketCommand reads a message to /ws/generate, by the rules of ParseChat.
// A command that is wrong is returned, too, as far as it could be read.
func ParseSocketCommand(data []byte) (SocketCommand, error) {
	f, err := parseBody(data)
	if err != nil {
		return SocketCommand{}, err
	}
	c := SocketCommand{V: f.integer("v", SocketVersion), Type: f.text("type"), ID: f.text("id"), API: f.text("api")}
	if f.err == nil {
		f.err = c.check()
	}
	if c.Type == SocketStart {
		c.Request = f.members["request"]
		if _, ok := f.raw("request"); !ok {
			f.fail(Invalid("request", "is missing; give the body that the API takes over HTTP"))
		}
	}
	return c, f.err
}

func (c *SocketCommand) check() error {
	switch {
	case c.V != SocketVersion:
		return Invalid("v", "must be %d, the version that this server speaks, got %d", SocketVersion, c.V)
	case c.Type != SocketStart && c.Type != SocketAbort:
		return Invalid("type", "must be start or abort, got %q", brief([]byte(c.Type)))
	case c.ID == "":
		return Invalid("id", "is missing")
	case len(c.ID) > maxSocketID:
		return Invalid("id", "has %d bytes, but may have at most %d", len(c.ID), maxSocketID)
	}
	switch c.API {
	case "":
		c.API = SocketChat
	case SocketChat, SocketCompletions, SocketGenerate:
	default:
		return Invalid("api", "must be chat, completions or generate, got %q", brief([]byte(c.API)))
	}
	return nil
}

package selftest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// flood is a chat server that sends its chunks as fast as they are read, many at a
// time, and spends next to nothing on them: the client is the limit.
type flood struct{}

const (
	floodChunk = `data: {"id":"flood","object":"chat.completion.chunk","created":1,"model":"mock","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}` + "\n\n"
	floodEnd   = `data: {"id":"flood","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n"
	floodBatch = 64 // chunks of one write
)

// ServeHTTP implements http.Handler.
func (flood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	many := []byte(strings.Repeat(floodChunk, floodBatch))
	for left := req.MaxTokens; left > 0; left -= floodBatch {
		n := min(left, floodBatch)
		if _, err := w.Write(many[:n*len(floodChunk)]); err != nil {
			return // the client left
		}
	}
	_, _ = w.Write([]byte(floodEnd)) // a client that left needs no end
}

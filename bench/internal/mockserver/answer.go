package mockserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/ontime"
)

// api is the form of an answer.
type api int

const (
	chatAPI api = iota
	completionsAPI
	generateAPI
	tritonAPI
)

// answer is one reply.
type answer struct {
	cfg    Config
	api    api
	w      http.ResponseWriter
	r      *http.Request
	begin  time.Time
	usage  Usage
	prompt int             // tokens of the prompt
	pace   float64         // factor of all delays
	text   strings.Builder // sent so far
}

func (a *answer) stream(want int) {
	a.w.Header().Set("Content-Type", "text/event-stream")
	total, finish := want, "length"
	if a.cfg.EOSAfter > 0 && a.cfg.EOSAfter < want {
		total, finish = a.cfg.EOSAfter, "stop"
	}
	if a.cfg.RoleChunk && a.api == chatAPI {
		a.send(a.chunk(0, &part{role: "assistant"}))
	}
	for sent, n := 0, 0; sent < total; n++ {
		tokens := min(a.cfg.TokensPerChunk, total-sent)
		due := a.cfg.TTFT
		if n > 0 {
			due += time.Duration(sent+tokens-a.cfg.TokensPerChunk) * a.cfg.ITL
		}
		event := a.event(a.chunk(sent+tokens, &part{text: a.words(sent, tokens, n)})) // before the wait, which it would lengthen
		if !a.wait(due) || !a.fault(sent) {
			return
		}
		sent += tokens
		a.write(event)
	}
	if a.fault(total) && (a.cfg.EndDelay == 0 || a.wait(time.Since(a.begin)+a.cfg.EndDelay)) {
		a.end(total, finish)
	}
}

func (a *answer) end(total int, finish string) {
	if !a.cfg.NoFinish && a.api != tritonAPI {
		a.send(a.chunk(total, &part{finish: finish}))
	}
	if a.usage != UsageNever && (a.api == chatAPI || a.api == completionsAPI) {
		closing := a.chunk(total, nil)
		closing["usage"] = a.count(total)
		a.send(closing)
	}
	if !a.cfg.NoDone && a.api != tritonAPI {
		a.write("[DONE]")
	}
}

// words is the text of chunk n, which brings tokens first to first+tokens-1.
func (a *answer) words(first, tokens, n int) string {
	var text strings.Builder
	for i := first; i < first+tokens && n >= a.cfg.EmptyText; i++ {
		token := fmt.Sprintf(" t%d", i)
		text.WriteString(token + strings.Repeat("x", max(a.cfg.TextBytes-len(token), 0)))
	}
	return text.String()
}

// fault does what is planned after so many tokens; false means the answer is over.
func (a *answer) fault(sent int) bool {
	switch {
	case sent == 0:
		return true
	case a.cfg.ErrorAfter > 0 && sent >= a.cfg.ErrorAfter && a.cfg.ErrorEvent:
		_, _ = a.w.Write([]byte("event: error" + a.cfg.Newline))
		a.write("planned stream error")
		return false
	case a.cfg.ErrorAfter > 0 && sent >= a.cfg.ErrorAfter:
		a.write(`{"error":{"message":"planned stream error","type":"mock","code":500}}`)
		return false
	case a.cfg.CutAfter > 0 && sent >= a.cfg.CutAfter:
		panic(http.ErrAbortHandler)
	case a.cfg.StallAfter > 0 && sent >= a.cfg.StallAfter:
		<-a.r.Context().Done()
		return false
	case a.cfg.GarbageAfter > 0 && sent >= a.cfg.GarbageAfter:
		a.write(`{"choices":[{"delta":{"cont`)
	}
	return true
}

// wait sleeps until due after the request came; false means the client left.
func (a *answer) wait(due time.Duration) bool {
	return ontime.Wait(a.r.Context(), a.begin.Add(time.Duration(float64(due)*a.pace)))
}

func (a *answer) send(c fields) { a.write(a.event(c)) }

// event is the data of an event.
func (a *answer) event(c fields) string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return string(data)
}

// write sends one event. A failed write means the client left, which the next
// wait notices.
func (a *answer) write(data string) {
	field := "data: "
	if a.cfg.NoSpace {
		field = "data:"
	}
	event := field + data + a.cfg.Newline + a.cfg.Newline
	if a.cfg.Comments {
		event = ": ping" + a.cfg.Newline + a.cfg.Newline + event
	}
	flusher := http.NewResponseController(a.w)
	if !a.cfg.OneByte {
		_, _ = a.w.Write([]byte(event))
		_ = flusher.Flush()
		return
	}
	for i := range len(event) {
		_, _ = a.w.Write([]byte{event[i]})
		_ = flusher.Flush()
	}
}

package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/go/openai"
)

// maxUsage bounds the token count that a server may claim for one answer.
const maxUsage = 1 << 20

// piece is what a chunk says about tokens.
type piece struct {
	at     time.Duration
	text   bool // carries text of any channel, or a tool call
	role   bool
	choice bool // belongs to the answer; false for a chunk that only carries usage
	usage  int  // completion tokens so far; -1 if not said
}

// Decode fills rec from an answer to one of the target's requests.
func (t *Target) Decode(x *Exchange, begin time.Time, rec *record.Record) {
	req := t.requests[rec.Index]
	rec.MaxTokens = req.MaxTokens
	if req.InputLen > 0 {
		rec.InputLen = req.InputLen
	}
	rec.Kind, rec.Err, rec.Status = x.Kind, x.Err, x.Status
	rec.Done = x.Done.Sub(begin)
	rec.WholeAnswer = t.opts.NoStream
	if len(x.Events) > 0 {
		rec.FirstByte = x.Events[0].At.Sub(begin)
	}
	d := decoder{api: t.api, rec: rec}
	pieces := make([]piece, 0, len(x.Events))
	for _, ev := range x.Events {
		p, ok := d.event(ev)
		if !ok {
			break
		}
		p.at = ev.At.Sub(begin)
		pieces = append(pieces, p)
	}
	rec.Text = d.text.String()
	countTokens(pieces, rec)
	d.checkEnd(x)
}

// decoder reads the events of one answer.
type decoder struct {
	api  API
	rec  *record.Record
	text strings.Builder
}

// event reads one event; false means that it ends the answer in failure.
func (d *decoder) event(ev openai.Event) (piece, bool) {
	p := piece{usage: -1}
	chunk, err := parse(d.api, []byte(ev.Data))
	switch {
	case err != nil && ev.Name == "error":
		d.rec.Kind, d.rec.Err = record.StreamError, snippet(ev.Data)
		return p, false
	case err != nil:
		if d.rec.OK() {
			d.rec.Kind, d.rec.Err = record.BadJSON, jsonText(err)+": "+snippet(ev.Data)
		}
		return p, false
	case ev.Name == "error" || len(chunk.err) > 0 && !bytes.Equal(chunk.err, []byte("null")):
		d.rec.Kind, d.rec.Err = record.StreamError, snippet(errorText(ev.Data, chunk.err))
		return p, false
	}
	p.choice, p.role, p.text = chunk.choice, chunk.role, chunk.tool || d.addText(chunk)
	if chunk.finish != "" {
		d.rec.Finish = chunk.finish
	}
	return p, d.usage(chunk, &p)
}

// addText keeps a chunk's text and reports whether it brought any.
func (d *decoder) addText(c chunk) bool {
	if c.whole {
		fresh, grows := strings.CutPrefix(c.text, d.text.String())
		if grows { // the answer so far; else a server that sends what is new
			c.text = fresh
		}
	}
	d.text.WriteString(c.text)
	return c.text != ""
}

func (d *decoder) usage(c chunk, p *piece) bool {
	if c.prompt != nil {
		d.rec.PromptTokens = max(*c.prompt, 0)
	}
	if c.cached != nil {
		d.rec.CachedTokens = max(*c.cached, 0)
	}
	if c.completion != nil {
		if n := *c.completion; n < 0 || n > maxUsage {
			d.rec.Kind, d.rec.Err = record.BadJSON, fmt.Sprintf("the server's count of completion tokens is %d, want 0 to %d", n, maxUsage)
			return false
		}
		p.usage = *c.completion
	}
	return true
}

// checkEnd fails an answer that did not end as the protocol asks.
func (d *decoder) checkEnd(x *Exchange) {
	rec := d.rec
	switch {
	case !rec.OK():
	case rec.Finish == "abort" || rec.Finish == "error":
		rec.Kind, rec.Err = record.StreamError, "finish_reason is "+rec.Finish
	case d.api == TensorRT: // its streams just end
		if len(rec.Tokens) == 0 {
			rec.Kind, rec.Err = record.Truncated, "the stream ended without text"
		}
	case !x.Finish:
		rec.Kind, rec.Err = record.Truncated, "the stream ended without [DONE]"
	case rec.Finish == "":
		rec.Kind, rec.Err = record.Truncated, "the stream ended without a finish_reason"
	}
}

// jsonText says what is wrong with JSON without the names of Go types.
func jsonText(err error) string {
	var e *json.UnmarshalTypeError
	if errors.As(err, &e) {
		return fmt.Sprintf("json: unexpected %s at byte %d", e.Value, e.Offset)
	}
	return err.Error()
}

// errorText returns the message of an error object, or the whole event.
func errorText(data string, object json.RawMessage) string {
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(object, &e) == nil && e.Message != "" {
		return e.Message
	}
	return data
}

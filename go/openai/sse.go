package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// DefaultMaxEvent is the largest line, and the largest event, that an
// EventReader accepts when no other limit is given: 16 MiB.
const DefaultMaxEvent = 16 << 20

// ErrEventTooLarge is returned, wrapped, when a line or an event of a stream
// is larger than the reader's limit.
var ErrEventTooLarge = errors.New("event too large")

const (
	readSize      = 32 << 10
	maxEmptyReads = 100
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// Event is one server-sent event.
type Event struct {
	Name string    // value of the last "event" field; empty means "message"
	Data string    // the "data" lines, joined by a newline
	ID   string    // last event id seen on the stream so far
	At   time.Time // when the read that completed the event returned
}

// EventReader reads server-sent events as the WHATWG HTML standard (section
// 9.2.6, "Interpreting an event stream") defines them: lines may end in LF, CR
// or CRLF, the space after a colon is optional, comments and unknown fields are
// skipped. It differs in two points: bytes are passed on as they are, without
// replacing invalid UTF-8, and an event that the end of the stream completes
// (no blank line after it) is returned rather than dropped.
//
// It is not safe for use by several goroutines.
type EventReader struct {
	r        io.Reader
	maxEvent int
	buf      []byte    // what Read filled
	rest     []byte    // the part of buf not yet consumed
	readAt   time.Time // when the bytes in rest arrived
	line     []byte    // start of a line that earlier reads brought
	skipLF   bool      // the last line ended in CR: a LF here belongs to it
	started  bool      // the byte order mark has been looked for
	err      error     // sticky

	name    string
	id      string
	data    []byte
	hasData bool
}

// NewEventReader returns a reader of the events in r. maxEvent bounds the bytes
// of one line and of one event's data; 0 or less means DefaultMaxEvent.
func NewEventReader(r io.Reader, maxEvent int) *EventReader {
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
	return &EventReader{r: r, maxEvent: maxEvent, buf: make([]byte, readSize)}
}

// Next returns the next event. At the end of the stream it returns io.EOF; an
// error of the underlying reader is returned as it is, and an event it cut is
// not. Event.At is taken right after the underlying Read returns, so that what
// the caller does between two calls does not move it.
func (e *EventReader) Next() (Event, error) {
	for {
		for len(e.rest) > 0 {
			line, ok, err := e.takeLine()
			if err != nil {
				return Event{}, err
			}
			if !ok {
				break
			}
			ev, done, err := e.endLine(line)
			if done || err != nil {
				return ev, err
			}
		}
		if e.err != nil {
			return e.finish()
		}
		e.fill()
	}
}

// fill reads once more into the empty buffer, or sets e.err.
func (e *EventReader) fill() {
	for range maxEmptyReads {
		n, err := e.r.Read(e.buf)
		e.readAt = time.Now()
		e.rest = e.buf[:n]
		e.err = err
		if n > 0 || err != nil {
			return
		}
	}
	e.err = io.ErrNoProgress
}

// finish returns the event that a clean end of the stream completes, then e.err.
func (e *EventReader) finish() (Event, error) {
	if !errors.Is(e.err, io.EOF) {
		return Event{}, e.err
	}
	if len(e.line) > 0 {
		line := e.line
		e.line = nil
		ev, done, err := e.endLine(line)
		if done || err != nil {
			return ev, err
		}
	}
	if e.hasData {
		return e.dispatch(), nil
	}
	return Event{}, io.EOF
}

// takeLine takes one line, without its end, from the unread bytes. ok is false
// when the line's end has not arrived yet. The line is valid until the next call.
func (e *EventReader) takeLine() (line []byte, ok bool, err error) {
	if e.skipLF {
		e.skipLF = false
		e.rest = bytes.TrimPrefix(e.rest, []byte("\n"))
		if len(e.rest) == 0 {
			return nil, false, nil
		}
	}
	end := bytes.IndexByte(e.rest, '\n')
	head := e.rest
	if end >= 0 {
		head = e.rest[:end]
	}
	if cr := bytes.IndexByte(head, '\r'); cr >= 0 {
		end = cr
		e.skipLF = true
	}
	if end < 0 {
		end = len(e.rest)
	} else {
		ok = true
	}
	if len(e.line)+end > e.maxEvent {
		return nil, false, e.fail("a line")
	}
	if !ok {
		e.line = append(e.line, e.rest...)
		e.rest = nil
		return nil, false, nil
	}
	line = e.rest[:end]
	e.rest = e.rest[end+1:]
	if len(e.line) > 0 {
		line = append(e.line, line...)
		e.line = line[:0]
	}
	return line, true, nil
}

// endLine interprets a complete line; done is true when it completes an event.
func (e *EventReader) endLine(line []byte) (ev Event, done bool, err error) {
	if !e.started {
		e.started = true
		line = bytes.TrimPrefix(line, byteOrderMark)
	}
	if len(line) == 0 {
		if e.hasData {
			return e.dispatch(), true, nil
		}
		e.name = ""
		return Event{}, false, nil
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		return Event{}, false, e.addData(value)
	case "event":
		e.name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.id = string(value)
		}
	}
	return Event{}, false, nil
}

func (e *EventReader) addData(value []byte) error {
	if len(e.data)+len(value) > e.maxEvent {
		return e.fail("an event's data")
	}
	if e.hasData {
		e.data = append(e.data, '\n')
	}
	e.data = append(e.data, value...)
	e.hasData = true
	return nil
}

func (e *EventReader) dispatch() Event {
	ev := Event{Name: e.name, Data: string(e.data), ID: e.id, At: e.readAt}
	e.name, e.data, e.hasData = "", e.data[:0], false
	return ev
}

// fail makes the reader unusable: past the limit there is no way to tell where
// the next event starts without reading without bound.
func (e *EventReader) fail(what string) error {
	e.err = fmt.Errorf("openai: reading events: %s is longer than %d bytes: %w", what, e.maxEvent, ErrEventTooLarge)
	e.rest, e.line, e.data, e.hasData = nil, nil, nil, false
	return e.err
}

// AppendEvent appends one event that carries data to dst and returns the longer
// slice. Each line of data becomes a "data" field of its own, so no content can
// end the event early or add a field; CR and CRLF in data become LF.
func AppendEvent(dst, data []byte) []byte {
	for {
		end := bytes.IndexAny(data, "\r\n")
		dst = append(dst, "data: "...)
		if end < 0 {
			dst = append(dst, data...)
			return append(dst, "\n\n"...)
		}
		dst = append(dst, data[:end]...)
		dst = append(dst, '\n')
		if bytes.HasPrefix(data[end:], []byte("\r\n")) {
			end++
		}
		data = data[end+1:]
	}
}

// WriteEvent writes one event that carries data to w, in one Write. See AppendEvent.
func WriteEvent(w io.Writer, data []byte) error {
	if _, err := w.Write(AppendEvent(make([]byte, 0, len(data)+16), data)); err != nil {
		return fmt.Errorf("openai: writing an event: %w", err)
	}
	return nil
}

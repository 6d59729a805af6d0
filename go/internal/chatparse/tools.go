package chatparse

import "bytes"

// maxHeld bounds the text that is held back because it may not be a call.
const maxHeld = 64 << 10

// tools finds the calls in content.
type tools struct {
	format
	functions []string
	single    bool

	buf   []byte            // text that isn't settled
	pos   int               // how much of it state has taken
	back  int               // how much of it is content if it is no call
	state func(*tools) bool // takes text and returns true, or false if it wants more
	ended bool              // no more text comes
	out   []Event

	blank  bool   // nothing but white space has come
	unsaid bool   // there is no content yet behind the last call
	call   object // that is being read
	begun  bool   // and its CallBegin is out
	doubt  bool   // its arguments have the mark of its end in a string; buf begins with that
}

func newTools(o Options) *tools {
	t := &tools{format: formatOf(o.Tools), functions: o.Functions, single: o.Single, blank: true, state: (*tools).content}
	if t.begin == "" {
		t.state = t.open
	}
	return t
}

func (t *tools) feed(text string, ended bool) []Event {
	t.buf, t.ended, t.out = append(t.buf, text...), ended, nil
	for t.state(t) {
	}
	return t.out
}

// content is the state outside of calls.
func (t *tools) content() bool {
	if t.unsaid && len(t.buf) <= maxSpace && len(bytes.TrimLeft(t.buf, space)) == 0 {
		if t.ended {
			t.drop(len(t.buf))
		}
		return false
	}
	if t.begin == "" {
		t.say(len(t.buf))
		return false
	}
	if t.bare && t.blank {
		if waits, call := t.bareCall(); waits || call {
			return call
		}
	}
	text, rest := split(t.buf, t.begin, t.ended)
	t.say(text)
	if rest == 0 {
		return false
	}
	t.pos = rest - text
	t.back, t.state = t.pos, t.open
	return true
}

// bareCall looks whether the answer begins with an object.
func (t *tools) bareCall() (waits, call bool) {
	n := len(t.buf) - len(bytes.TrimLeft(t.buf, space))
	switch {
	case n == len(t.buf) && n <= maxSpace && !t.ended:
		return true, false
	case n < len(t.buf) && n <= maxSpace && t.buf[n] == '{':
		t.pos, t.back, t.state = n, 0, (*tools).object
		return false, true
	}
	t.blank = false
	return false, false
}

// say makes the first n bytes content.
func (t *tools) say(n int) {
	if n > 0 {
		t.out = appendText(t.out, Content, string(t.buf[:n]))
		t.unsaid, t.blank = false, false
	}
	t.drop(n)
}

func (t *tools) drop(n int) { t.buf = t.buf[n:] }

// skipSpace returns the next byte that is no white space; ok is false if there is
// none yet.
func (t *tools) skipSpace() (c byte, ok bool) {
	for ; t.pos < len(t.buf); t.pos++ {
		if !isSpace(t.buf[t.pos]) {
			return t.buf[t.pos], true
		}
	}
	return 0, false
}

// object is the state before a call's object.
func (t *tools) object() bool {
	c, ok := t.skipSpace()
	switch {
	case !ok && !t.ended && t.pos <= maxHeld:
		return false
	case !ok && t.ended && t.unsaid: // what stands between two calls
		return t.discard()
	case c != '{':
		return t.giveBack()
	}
	return t.beginCall(object{})
}

func (t *tools) beginCall(o object) bool {
	t.call, t.begun, t.doubt, t.state = o, false, false, (*tools).inCall
	return true
}

// giveBack makes text that began like a call content.
func (t *tools) giveBack() bool {
	if t.bare && t.back == 0 {
		t.blank = false
	}
	t.say(t.back)
	t.pos, t.state = 0, (*tools).content
	return true
}

package chatparse

import (
	"bytes"
	"slices"
)

// inCall is the state within a call's object.
func (t *tools) inCall() bool {
	for t.pos < len(t.buf) {
		what := t.call.step(t.buf[t.pos])
		if what == broken {
			return t.breakCall()
		}
		t.pos++
		if !t.begun && (!t.announce() || !t.begun && t.pos > maxHeld) {
			return t.giveBack()
		}
		if what == complete {
			return t.endCall(t.next)
		}
		t.watchForEnd()
	}
	switch {
	case t.ended && !t.begun && !t.mayBeContent():
		return t.discard()
	case t.ended:
		return t.breakCall()
	}
	if t.begun && !t.doubt {
		t.settle(partial(t.buf[:t.pos], t.end))
	}
	return false
}

// mayBeContent tells whether an object may be the answer itself, and no call: no mark
// is before it.
func (t *tools) mayBeContent() bool { return t.bare && t.back == 0 && !t.unsaid }

// announce lets the call's begin out if its name and arguments are there. It
// reports false if it is no call.
func (t *tools) announce() bool {
	if t.call.name == "" || !t.call.has {
		return true
	}
	if t.bare && t.back == 0 && !slices.Contains(t.functions, t.call.name) {
		return false
	}
	t.begun = true
	t.out = append(t.out, Event{CallBegin, t.call.name})
	t.drop(t.pos)
	t.pos = 0
	return true
}

// watchForEnd sees whether a string has the mark of the call's end. Either it is of
// the string, or the string has no end: that shows later.
func (t *tools) watchForEnd() {
	switch {
	case t.doubt && t.pos > maxHeld:
		t.doubt = false
	case t.begun && !t.doubt && t.end != "" && t.call.quote && bytes.HasSuffix(t.buf[:t.pos], []byte(t.end)):
		t.settle(len(t.end))
		t.doubt = true
	}
}

// settle lets out arguments, but for what stands in the last n bytes of text.
func (t *tools) settle(n int) {
	args := t.call.args
	if t.call.open() {
		args = args[:max(len(args)-n, 0)]
	}
	t.out = appendText(t.out, Arguments, string(args))
	t.call.args = t.call.args[len(args):]
	t.drop(t.pos - n)
	t.pos = n
}

// endCall ends a call before t.pos.
func (t *tools) endCall(next func(*tools) bool) bool {
	t.settle(0)
	t.unsaid, t.blank, t.state = true, false, next
	if t.single {
		t.state = (*tools).discard
	}
	return true
}

func (t *tools) discard() bool {
	t.drop(len(t.buf))
	return false
}

// breakCall ends a call that can't go on at t.pos.
func (t *tools) breakCall() bool {
	switch {
	case !t.begun:
		return t.giveBack()
	case t.doubt: // the string had no end
		t.call.args, t.pos = nil, len(t.end)
		return t.endCall((*tools).content)
	case t.pos == len(t.buf): // the answer ends here
		return t.endCall((*tools).content)
	case !t.call.open():
		return t.endCall(t.next)
	}
	t.settle(0)
	t.state = (*tools).brokenArguments
	return true
}

// brokenArguments is the state behind what can't be in arguments.
func (t *tools) brokenArguments() bool { return t.upToMark(Arguments) }

// stray is the state behind a call whose end isn't where it should be.
func (t *tools) stray() bool { return t.upToMark(Content) }

// upToMark lets text out up to the end of the call, or the begin of another.
func (t *tools) upToMark(kind Kind) bool {
	n, rest := len(t.buf), 0
	if t.begin != "" {
		n, rest = split(t.buf, t.begin, t.ended)
	}
	if t.end != "" {
		m, behind := split(t.buf, t.end, t.ended)
		if behind > 0 && (rest == 0 || behind < rest) {
			n, rest = m, behind
			t.buf = append(t.buf[:n:n], t.buf[rest:]...)
		}
		n = min(n, m)
	}
	if n > 0 {
		t.out = appendText(t.out, kind, string(t.buf[:n]))
	}
	t.drop(n)
	if rest == 0 {
		return false
	}
	t.endCall((*tools).content)
	t.unsaid = kind == Arguments
	return true
}

package chatparse

import (
	"bytes"
	"strings"
)

// maxWord bounds the name of a function where it is no JSON string.
const maxWord = 256

// list is the state before a list of calls.
func (t *tools) list() bool {
	c, ok := t.skipSpace()
	switch {
	case !ok && !t.ended && t.pos <= maxHeld:
		return false
	case c != '[':
		return t.giveBack()
	}
	t.pos++
	t.state = (*tools).object
	return true
}

// nextInList is the state behind a call of a list.
func (t *tools) nextInList() bool {
	c, ok := t.skipSpace()
	switch {
	case !ok && !t.ended:
		return false
	case c == ',':
		return t.another()
	case c == ']':
		t.drop(t.pos + 1)
	}
	return t.over()
}

// nextLlama is the state behind a call of llama3. Models sometimes leave out the
// semicolon.
func (t *tools) nextLlama() bool {
	c, ok := t.skipSpace()
	switch {
	case !ok && !t.ended:
		return false
	case c == ';':
		return t.another()
	case c == '{':
		t.back, t.state = 0, (*tools).object
		return true
	}
	return t.over()
}

// another goes on to a further call, behind the character between them.
func (t *tools) another() bool {
	t.pos++
	t.back, t.state = 0, (*tools).object
	return true
}

func (t *tools) over() bool {
	t.pos, t.state = 0, (*tools).content
	return true
}

// nextHermes is the state behind a call's object. Models sometimes close more
// brackets than are open.
func (t *tools) nextHermes() bool {
	rest := bytes.TrimLeft(t.buf, space+"}]")
	t.drop(len(t.buf) - len(rest))
	switch {
	case bytes.HasPrefix(rest, []byte(t.end)):
		t.drop(len(t.end))
		return t.over()
	case strings.HasPrefix(t.end, string(rest)): // a part of the mark, or nothing
		if t.ended {
			t.drop(len(rest))
		}
		return false
	}
	t.state = (*tools).stray
	return true
}

// mistral is the state behind [TOOL_CALLS].
func (t *tools) mistral() bool {
	c, ok := t.skipSpace()
	switch {
	case !ok && !t.ended && t.pos <= maxHeld:
		return false
	case c == '[':
		return t.list()
	}
	name, rest := mistralWord(t.buf[t.pos:])
	var id []byte
	if behind, has := bytes.CutPrefix(rest, []byte(mistralID)); has {
		id, rest = mistralWord(behind)
	}
	rest, marked := bytes.CutPrefix(rest, []byte(mistralArgs))
	text := bytes.TrimLeft(rest, space)
	switch {
	case len(name) == 0 || max(len(name), len(id), len(rest)-len(text)) > maxWord:
	case bytes.HasPrefix(text, []byte("{")):
		t.pos = len(t.buf) - len(text)
		return t.beginCall(object{at: beforeValue, value: argsRole, only: true, name: string(name)})
	case !t.ended && (len(text) == 0 || !marked && isPart(rest)):
		return false
	}
	return t.giveBack()
}

// isPart tells whether text may become the mark behind a name.
func isPart(text []byte) bool {
	return strings.HasPrefix(mistralArgs, string(text)) || strings.HasPrefix(mistralID, string(text))
}

// mistralWord splits off the name, or the number, of a call.
func mistralWord(text []byte) (word, rest []byte) {
	n := bytes.IndexFunc(text, func(r rune) bool {
		return r != '_' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if n < 0 {
		n = len(text)
	}
	return text[:n], text[n:]
}

package chatparse

import (
	"encoding/json"
	"strings"
)

// object reads the JSON object that is a call, byte by byte. It checks the
// object's own members, but within a value only strings, brackets and which
// characters there are: the values are the reader's to check.
type object struct {
	at    place
	value role   // of the value being read
	only  bool   // the value is all there is
	text  []byte // of a key, or of a value that must be there as a whole
	close []byte // the brackets that end what is open within the value
	quote bool   // within a string
	skip  bool   // behind a backslash

	name string
	has  bool   // the arguments have begun, or are all there
	args []byte // of the arguments, what nobody has taken yet
}

// place is where an object has been read to.
type place uint8

const (
	beforeObject place = iota
	beforeKey
	inKey
	beforeColon
	beforeValue
	inValue
	behindValue
)

// role is what a value is of a call.
type role uint8

const (
	otherRole role = iota
	nameRole
	argsRole
)

// result is what a byte means for an object.
type result uint8

const (
	goesOn result = iota
	complete
	broken // the byte can't be there
)

// step takes the next byte.
func (o *object) step(c byte) result {
	if o.at == inKey || o.at == inValue {
		return o.inside(c)
	}
	switch {
	case isSpace(c):
		return goesOn
	case o.at == beforeObject && c == '{', o.at == behindValue && c == ',':
		o.at = beforeKey
	case o.at == beforeKey && c == '"':
		o.at, o.quote, o.text = inKey, true, append(o.text[:0], c)
	case o.at == beforeColon && c == ':':
		o.at = beforeValue
	case o.at == beforeValue:
		return o.beginValue(c)
	case (o.at == behindValue || o.at == beforeKey) && c == '}':
		return o.end()
	default:
		return broken
	}
	return goesOn
}

func (o *object) end() result {
	if o.name == "" {
		return broken
	}
	if !o.has {
		o.has, o.args = true, []byte("{}")
	}
	return complete
}

// roleOf returns what the value of the key in o.text is. The first value of a role
// counts.
func (o *object) roleOf() role {
	var key string
	switch err := json.Unmarshal(o.text, &key); {
	case err != nil:
		return otherRole
	case key == "name" && o.name == "":
		return nameRole
	case (key == "arguments" || key == "parameters") && !o.has:
		return argsRole
	}
	return otherRole
}

func (o *object) beginValue(c byte) result {
	if o.value == nameRole && c != '"' {
		return broken
	}
	o.at, o.text, o.close = inValue, o.text[:0], o.close[:0]
	if o.value == argsRole && c == '{' {
		o.has = true
	}
	return o.inside(c)
}

// inside takes a byte of a key or a value.
func (o *object) inside(c byte) result {
	switch {
	case o.quote:
		o.quote = o.skip || c != '"'
		o.skip = !o.skip && c == '\\'
	case c == '"':
		o.quote = true
	case c == '{':
		o.close = append(o.close, '}')
	case c == '[':
		o.close = append(o.close, ']')
	case len(o.close) == 0 && (isSpace(c) || c == ',' || c == '}'):
		return o.afterScalar(c)
	case c == '}' || c == ']':
		n := len(o.close) - 1
		if n < 0 || o.close[n] != c {
			return broken
		}
		o.close = o.close[:n]
	case !ofValue(c):
		return broken
	}
	o.keep(c)
	if o.quote || len(o.close) > 0 || c != '"' && c != '}' && c != ']' {
		return goesOn
	}
	return o.endText()
}

// ofValue tells whether JSON has c outside of strings, brackets aside.
func ofValue(c byte) bool {
	return isSpace(c) || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("+-.,:", c) >= 0
}

// afterScalar ends a number, true, false or null, behind which c is.
func (o *object) afterScalar(c byte) result {
	if len(o.text) == 0 && o.value != otherRole || o.endText() == broken {
		return broken
	}
	return o.step(c)
}

func (o *object) keep(c byte) {
	switch {
	case o.at == inValue && o.value == argsRole && o.has:
		o.args = append(o.args, c)
	case o.at == inKey || o.value != otherRole:
		o.text = append(o.text, c)
	}
}

// endText ends a key or a value.
func (o *object) endText() result {
	if o.at == inKey {
		o.at, o.value = beforeColon, o.roleOf()
		return goesOn
	}
	o.at = behindValue
	switch {
	case o.value == nameRole:
		if json.Unmarshal(o.text, &o.name) != nil || o.name == "" {
			return broken
		}
	case o.value == argsRole && !o.has:
		return o.wholeArgs()
	}
	if o.only {
		return complete
	}
	return goesOn
}

// wholeArgs takes arguments that are no object: null is for none, and a string may
// hold the object as text.
func (o *object) wholeArgs() result {
	text := "{}"
	if string(o.text) != "null" {
		if json.Unmarshal(o.text, &text) != nil || !strings.HasPrefix(strings.TrimLeft(text, space), "{") {
			return broken
		}
	}
	o.has, o.args = true, []byte(text)
	return goesOn
}

// open tells whether the arguments are being read.
func (o *object) open() bool { return o.at == inValue && o.value == argsRole && o.has }

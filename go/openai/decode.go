package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// MaxDepth is how deep lists and objects of a request may nest.
const MaxDepth = 256

const (
	maxMembers  = 4096    // members of an object
	maxElements = 1 << 16 // elements of a list
	maxFreeForm = 4 << 20 // bytes of a value whose shape is the caller's (a tool's schema)
	maxInteger  = math.MaxInt32
)

// fields reads the members of a JSON object. The first member that can't be read
// sets err, and later calls change nothing.
type fields struct {
	path    string // of the object; "" for the body
	members map[string]json.RawMessage
	err     error
}

// parseBody reads a request's body, which must be one JSON object.
func parseBody(data []byte) (*fields, error) {
	if nesting(data) > MaxDepth {
		return nil, Errorf(http.StatusBadRequest, "the body nests deeper than %d levels", MaxDepth)
	}
	data = bytes.TrimLeft(data, " \t\r\n")
	err := json.Unmarshal(data, &json.RawMessage{})
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, Errorf(http.StatusBadRequest, "the body is not valid JSON: %v, at byte %d", syntax, syntax.Offset)
	case err != nil:
		return nil, Errorf(http.StatusBadRequest, "the body is not valid JSON: %v", err)
	case data[0] != '{':
		return nil, Errorf(http.StatusBadRequest, "the body must be a JSON object, got %s", kindOf(data))
	}
	return parseObject("", data)
}

// nesting returns how deep lists and objects nest in data. It counts the
// brackets outside of strings, and so is right for valid JSON only.
func nesting(data []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// parseObject splits valid JSON without leading space into members.
// encoding/json can't decode into structs here: it ignores the case of names.
func parseObject(path string, raw json.RawMessage) (*fields, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, Invalid(path, "must be an object, got %s", kindOf(raw))
	}
	f := &fields{path: path, members: map[string]json.RawMessage{}}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, Invalid(path, "%v", err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, Invalid(path, "%v", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, Invalid(path, "%v", err)
		}
		f.members[name.(string)] = value
		if len(f.members) > maxMembers {
			return nil, Errorf(http.StatusBadRequest, "%s: has more than %d members", pathOr(path, "the body"), maxMembers)
		}
	}
	return f, nil
}

// parseList splits a list, valid JSON without leading space, into elements.
func parseList(path string, raw json.RawMessage) ([]json.RawMessage, error) {
	return splitList(path, raw, maxElements)
}

func splitList(path string, raw json.RawMessage, limit int) ([]json.RawMessage, error) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, Invalid(path, "must be a list, got %s", kindOf(raw))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, Invalid(path, "%v", err)
	}
	var list []json.RawMessage
	for dec.More() {
		if len(list) == limit {
			return nil, Invalid(path, "has more than %d elements", limit)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, Invalid(path, "%v", err)
		}
		list = append(list, value)
	}
	return list, nil
}

// name returns the path of a member.
func (f *fields) name(member string) string {
	if f.path == "" {
		return member
	}
	return f.path + "." + member
}

// raw returns a member's JSON; ok is false if it is absent or null.
func (f *fields) raw(member string) (raw json.RawMessage, ok bool) {
	raw, ok = f.members[member]
	return raw, ok && string(raw) != "null"
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// failAs passes on what is wrong with a member.
func (f *fields) failAs(member *fields) {
	if member.err != nil {
		f.fail(member.err)
	}
}

func (f *fields) mistyped(member, want string, raw json.RawMessage) {
	f.fail(Invalid(f.name(member), "must be %s, got %s", want, kindOf(raw)))
}

func (f *fields) text(member string) string {
	raw, ok := f.raw(member)
	if !ok {
		return ""
	}
	s, ok := textOf(raw)
	if !ok {
		f.mistyped(member, "a string", raw)
	}
	return s
}

func (f *fields) flag(member string) bool { return f.flagOr(member, false) }

func (f *fields) flagOr(member string, absent bool) bool {
	raw, ok := f.raw(member)
	if !ok {
		return absent
	}
	if raw[0] != 't' && raw[0] != 'f' {
		f.mistyped(member, "a boolean", raw)
	}
	return raw[0] == 't'
}

func (f *fields) number(member string, absent float64) float64 {
	raw, ok := f.raw(member)
	if !ok {
		return absent
	}
	if !isNumber(raw) {
		f.mistyped(member, "a number", raw)
		return absent
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		f.fail(Invalid(f.name(member), "must be a finite number, got %s", brief(raw)))
	}
	return x
}

// integer returns a member's value, moved to the nearer limit if it is beyond
// the range of a 32-bit integer.
func (f *fields) integer(member string, absent int) int {
	raw, ok := f.raw(member)
	if !ok {
		return absent
	}
	x := f.number(member, 0)
	if isNumber(raw) && x != math.Trunc(x) {
		f.fail(Invalid(f.name(member), "must be an integer, got %s", brief(raw)))
	}
	return int(min(max(x, -maxInteger-1), maxInteger))
}

// count is integer for members that must be at least 1.
func (f *fields) count(member string, absent int) int {
	n := f.integer(member, absent)
	if n < 1 {
		f.fail(Invalid(f.name(member), "must be at least 1, got %d", n))
	}
	return n
}

// seed returns nil if the member is absent.
func (f *fields) seed(member string) *uint64 {
	raw, ok := f.raw(member)
	if !ok {
		return nil
	}
	if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return &n
	}
	x := f.number(member, 0)
	if x < 0 || x != math.Trunc(x) || x >= 1<<64 || !strings.ContainsAny(string(raw), ".eE") {
		f.fail(Invalid(f.name(member), "must be an integer from 0 to %d, got %s", uint64(math.MaxUint64), brief(raw)))
		return nil
	}
	n := uint64(x)
	return &n
}

// object returns the members of an object; none if it is absent.
func (f *fields) object(member string) *fields {
	raw, ok := f.raw(member)
	if !ok {
		return &fields{path: f.name(member)}
	}
	o, err := parseObject(f.name(member), raw)
	if err != nil {
		f.fail(err)
		return &fields{path: f.name(member)}
	}
	return o
}

// list returns the elements of a list; nil if it is absent.
func (f *fields) list(member string) []json.RawMessage {
	raw, ok := f.raw(member)
	if !ok {
		return nil
	}
	list, err := parseList(f.name(member), raw)
	if err != nil {
		f.fail(err)
	}
	return list
}

// freeForm returns a value of any shape; nil if it is absent.
func (f *fields) freeForm(member string) json.RawMessage {
	raw, ok := f.raw(member)
	if !ok {
		return nil
	}
	if len(raw) > maxFreeForm {
		f.fail(Invalid(f.name(member), "is longer than %d bytes", maxFreeForm))
	}
	return raw
}

// document returns a JSON document, which may also be written as a string.
func (f *fields) document(member string) string {
	raw := f.freeForm(member)
	if text, ok := textOf(raw); ok {
		return text
	}
	return string(raw)
}

func textOf(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(raw, &s) == nil
}

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// kindOf names the type of a JSON value for an error.
func kindOf(raw json.RawMessage) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		return "a string"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list"
	case raw[0] == 't' || raw[0] == 'f':
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "the number " + brief(raw)
}

// brief shortens a value for an error.
func brief(raw []byte) string {
	const limit = 40
	if len(raw) > limit {
		return string(raw[:limit]) + "..."
	}
	return string(raw)
}

func pathOr(path, otherwise string) string {
	if path == "" {
		return otherwise
	}
	return path
}

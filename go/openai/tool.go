package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
)

// Tool is a function that the model may call.
type Tool struct {
	Raw        json.RawMessage // all of it, for the chat template
	Name       string
	Parameters json.RawMessage // a JSON schema; nil: there are none
}

// functionName is OpenAI's rule.
var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func parseTools(f *fields) []Tool {
	f.freeForm("tools")
	list := f.list("tools")
	tools := make([]Tool, 0, len(list))
	names := map[string]bool{}
	for i, raw := range list {
		path := fmt.Sprintf("%s[%d]", f.name("tools"), i)
		tool, err := parseTool(path, raw)
		if err == nil && names[tool.Name] {
			err = Invalid(path+".function.name", "%q is the name of two functions", tool.Name)
		}
		if err != nil {
			f.fail(err)
			return nil
		}
		names[tool.Name] = true
		tools = append(tools, tool)
	}
	if len(tools) == 0 {
		return nil
	}
	return tools
}

func parseTool(path string, raw json.RawMessage) (Tool, error) {
	tool := Tool{Raw: raw}
	f, err := parseObject(path, raw)
	if err != nil {
		return tool, err
	}
	if kind := f.text("type"); f.err == nil && kind != "function" {
		f.fail(Invalid(f.name("type"), "must be \"function\", got %q", brief([]byte(kind))))
	}
	function := f.object("function")
	tool.Name = function.functionName("name")
	function.text("description")
	function.flag("strict")
	function.object("parameters")
	if schema, ok := function.raw("parameters"); ok {
		tool.Parameters = schema
	}
	f.failAs(function)
	return tool, f.err
}

// functionName reads the name of a function, which must be there.
func (f *fields) functionName(member string) string {
	name := f.text(member)
	if f.err == nil && !functionName.MatchString(name) {
		f.fail(Invalid(f.name(member), "must be 1 to 64 letters, digits, underscores and dashes, got %q", brief([]byte(name))))
	}
	return name
}

// parseToolCalls checks the calls of an assistant's message, and returns them as
// chat templates want them: with arguments that are JSON values. Arguments that are
// no JSON object stay the string that they are, since models write such, too.
func parseToolCalls(f *fields) json.RawMessage {
	const member = "tool_calls"
	list := f.list(member)
	if len(list) == 0 {
		return nil
	}
	calls := make([]json.RawMessage, len(list))
	for i, raw := range list {
		var err error
		if calls[i], err = parseToolCall(fmt.Sprintf("%s[%d]", f.name(member), i), raw); err != nil {
			f.fail(err)
			return nil
		}
	}
	joined, err := json.Marshal(calls)
	if err != nil {
		f.fail(Invalid(f.name(member), "%v", err))
	}
	return joined
}

func parseToolCall(path string, raw json.RawMessage) (json.RawMessage, error) {
	f, err := parseObject(path, raw)
	if err != nil {
		return nil, err
	}
	function := f.object("function")
	if name, ok := function.raw("name"); !ok {
		function.fail(Invalid(function.name("name"), "is missing"))
	} else if _, ok := textOf(name); !ok {
		function.mistyped("name", "a string", name)
	}
	arguments, ok := function.raw("arguments")
	text, isText := textOf(arguments)
	switch {
	case f.err != nil:
		return nil, f.err
	case !ok:
		function.fail(Invalid(function.name("arguments"), "is missing; give a JSON object as a string"))
	case !isText && arguments[0] != '{':
		function.mistyped("arguments", "a JSON object as a string", arguments)
	}
	if function.err != nil || !isText {
		return raw, function.err
	}
	value, ok := objectOf(text)
	if !ok {
		return raw, nil
	}
	return withMember(raw, "function", withMember(f.members["function"], "arguments", value)), nil
}

// objectOf returns the JSON object that a text holds; an empty text holds an empty
// one.
func objectOf(text string) (json.RawMessage, bool) {
	if text == "" {
		text = "{}"
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &members) != nil || members == nil || nesting([]byte(text)) > MaxDepth {
		return nil, false
	}
	return json.RawMessage(text), true
}

// withMember returns a valid JSON object with another value of a member, if it has
// that.
func withMember(raw json.RawMessage, member string, value json.RawMessage) json.RawMessage {
	changed, err := mapMembers(raw, func(name string, old json.RawMessage) (json.RawMessage, error) {
		if name == member {
			return value, nil
		}
		return old, nil
	})
	if err != nil { // it isn't valid
		return raw
	}
	return changed
}

// mapMembers returns a JSON object with other values, in the same order.
func mapMembers(raw json.RawMessage, change func(name string, value json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err = dec.Decode(&value); err == nil {
			value, err = change(name.(string), value)
		}
		if err != nil {
			return nil, err
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

package openai

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Message is one turn of a chat, in the form that chat templates take.
type Message struct {
	Role    string                     // system, user, assistant or tool
	Content string                     // text parts are joined; "" if an assistant only calls tools
	Extra   map[string]json.RawMessage // tool_calls with arguments that are JSON values
}

// messageExtras are the further members that chat templates know, beside
// tool_calls.
var messageExtras = []string{"name", "tool_call_id", "reasoning_content"}

func parseMessages(f *fields) []Message {
	list := f.list("messages")
	if f.err != nil {
		return nil
	}
	if len(list) == 0 {
		f.fail(Invalid(f.name("messages"), "is empty; give at least one message"))
	}
	msgs := make([]Message, 0, len(list))
	for i, raw := range list {
		msg, err := parseMessage(fmt.Sprintf("%s[%d]", f.name("messages"), i), raw)
		if err != nil {
			f.fail(err)
			return nil
		}
		msgs = append(msgs, msg)
	}
	return msgs
}

func parseMessage(path string, raw json.RawMessage) (Message, error) {
	f, err := parseObject(path, raw)
	if err != nil {
		return Message{}, err
	}
	m := Message{Role: parseRole(f)}
	for _, name := range messageExtras {
		m.extra(name, f.freeForm(name))
	}
	f.freeForm("tool_calls")
	calls := parseToolCalls(f)
	m.extra("tool_calls", calls)
	m.Content = parseContent(f, m.Role == "assistant" && calls != nil)
	return m, f.err
}

// extra sets a further member, unless the value is nil.
func (m *Message) extra(name string, value json.RawMessage) {
	if value == nil {
		return
	}
	if m.Extra == nil {
		m.Extra = map[string]json.RawMessage{}
	}
	m.Extra[name] = value
}

func parseRole(f *fields) string {
	const roles = "system, developer, user, assistant or tool"
	if _, ok := f.raw("role"); !ok {
		f.fail(Invalid(f.name("role"), "is missing; give %s", roles))
	}
	switch role := f.text("role"); role {
	case "system", "user", "assistant", "tool":
		return role
	case "developer":
		return "system"
	default:
		f.fail(Invalid(f.name("role"), "must be %s, got %q", roles, brief([]byte(role))))
		return ""
	}
}

// parseContent reads a string or a list of text parts.
func parseContent(f *fields, optional bool) string {
	raw, ok := f.raw("content")
	switch {
	case !ok && optional:
		return ""
	case !ok:
		f.fail(Invalid(f.name("content"), "is missing; give a string or a list of text parts"))
		return ""
	case raw[0] == '[':
		return parseParts(f)
	case raw[0] != '"':
		f.mistyped("content", "a string or a list of text parts", raw)
		return ""
	}
	return f.text("content")
}

func parseParts(f *fields) string {
	parts := f.list("content")
	if len(parts) == 0 {
		f.fail(Invalid(f.name("content"), "is an empty list; give at least one text part"))
	}
	var text strings.Builder
	for i, raw := range parts {
		path := fmt.Sprintf("%s[%d]", f.name("content"), i)
		part, err := parseObject(path, raw)
		if err != nil {
			f.fail(err)
			return ""
		}
		if kind := part.text("type"); part.err == nil && kind != "text" {
			f.fail(Invalid(part.name("type"), "must be \"text\", the only kind of part that is supported, got %q", brief([]byte(kind))))
		}
		if _, ok := part.raw("text"); !ok {
			part.fail(Invalid(part.name("text"), "is missing"))
		}
		text.WriteString(part.text("text"))
		if part.err != nil {
			f.fail(part.err)
			return ""
		}
	}
	return text.String()
}

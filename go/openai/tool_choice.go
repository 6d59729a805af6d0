package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/core"
)

// toolChoice is a request's tool_choice: auto, none, required or a function's
// name; allowed are the functions that auto and required choose from, if not all.
type toolChoice struct {
	mode, function string
	allowed        []string
}

const (
	choiceAuto     = "auto"
	choiceNone     = "none"
	choiceRequired = "required"
)

func parseToolChoice(f *fields) toolChoice {
	const member = "tool_choice"
	raw, ok := f.raw(member)
	if !ok {
		return toolChoice{mode: choiceAuto}
	}
	if mode, ok := textOf(raw); ok {
		if !slices.Contains([]string{choiceAuto, choiceNone, choiceRequired}, mode) {
			f.fail(Invalid(f.name(member), "must be auto, none, required or an object that names a function, got %q", brief([]byte(mode))))
		}
		return toolChoice{mode: mode}
	}
	if raw[0] != '{' {
		f.mistyped(member, "a string or an object", raw)
		return toolChoice{}
	}
	o := f.object(member)
	choice := toolChoice{}
	switch kind := o.text("type"); {
	case o.err != nil:
	case kind == "function":
		choice = toolChoice{mode: choiceRequired, function: o.namedFunction()}
	case kind == "allowed_tools":
		choice = parseAllowedTools(o)
	default:
		o.fail(Invalid(o.name("type"), "must be function or allowed_tools, got %q", brief([]byte(kind))).WithCode(CodeUnsupported))
	}
	f.failAs(o)
	return choice
}

// namedFunction reads the name in a member "function".
func (f *fields) namedFunction() string {
	function := f.object("function")
	name := function.functionName("name")
	f.failAs(function)
	return name
}

// parseAllowedTools reads a choice that some of the tools are open to.
func parseAllowedTools(f *fields) toolChoice {
	o := f.object("allowed_tools")
	choice := toolChoice{mode: o.text("mode")}
	if o.err == nil && choice.mode != choiceAuto && choice.mode != choiceRequired {
		o.fail(Invalid(o.name("mode"), "must be auto or required, got %q", brief([]byte(choice.mode))))
	}
	for i, raw := range o.list("tools") {
		tool, err := parseObject(fmt.Sprintf("%s[%d]", o.name("tools"), i), raw)
		if err != nil {
			o.fail(err)
			break
		}
		if kind := tool.text("type"); tool.err == nil && kind != "function" {
			tool.fail(Invalid(tool.name("type"), "must be \"function\", got %q", brief([]byte(kind))))
		}
		choice.allowed = append(choice.allowed, tool.namedFunction())
		o.failAs(tool)
	}
	if len(choice.allowed) == 0 {
		o.fail(Invalid(o.name("tools"), "is empty; give at least one tool, or tool_choice none"))
	}
	f.failAs(o)
	return choice
}

// allow returns the tools that a choice leaves, which are all that the model sees:
// what it doesn't know it doesn't call.
func (c toolChoice) allow(f *fields, tools []Tool) []Tool {
	if c.allowed == nil {
		return tools
	}
	for i, name := range c.allowed {
		if !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == name }) {
			f.fail(Invalid(fmt.Sprintf("%s[%d].function.name", f.name("tool_choice.allowed_tools.tools"), i), "%q is not among the tools", name))
		}
	}
	return slices.DeleteFunc(tools, func(t Tool) bool { return !slices.Contains(c.allowed, t.Name) })
}

// parseTooling reads all that a chat says of tools.
func parseTooling(f *fields, req *ChatRequest) {
	tools, choice := parseTools(f), parseToolChoice(f)
	req.ParallelCalls = f.flagOr("parallel_tool_calls", true)
	if f.err != nil || choice.mode == choiceNone {
		return
	}
	if tools = choice.allow(f, tools); f.err != nil {
		return
	}
	req.Tools = tools
	if choice.mode != choiceRequired {
		return
	}
	field := "tools"
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == choice.function })
	switch {
	case len(tools) == 0:
		f.fail(Invalid(f.name("tool_choice"), "asks for a call, but there are no tools"))
		return
	case req.Sampling.Grammar.Kind != "":
		f.fail(Invalid(f.name("tool_choice"), "asks for a call, which can't be one of %s", req.Sampling.Grammar.Name()))
		return
	case choice.function != "" && i < 0:
		f.fail(Invalid(f.name("tool_choice.function.name"), "%q is not among the tools", choice.function))
		return
	case choice.function != "":
		tools, field = tools[i:i+1], fmt.Sprintf("tools[%d].function.parameters", i)
	}
	req.MustCall = true
	text, err := callsSchema(tools, choice.function == "" && req.ParallelCalls)
	if err != nil {
		f.fail(Invalid(field, "%v", err))
	}
	req.Sampling.Grammar = core.Grammar{Kind: core.GrammarJSONSchema, Text: text, Field: field}
	checkSampling(f, req.Sampling, nil)
}

// callsSchema is the JSON schema of a list of calls, with at least one.
func callsSchema(tools []Tool, several bool) (string, error) {
	var list []string
	for i, tool := range tools {
		place := fmt.Sprintf("#/items/anyOf/%d/properties/parameters", i)
		parameters, err := movedSchema(tool.Parameters, place)
		if err != nil {
			return "", err
		}
		list = append(list, fmt.Sprintf(`{"type":"object","properties":{"name":{"const":%q},"parameters":%s},"required":["name","parameters"],"additionalProperties":false}`,
			tool.Name, parameters))
	}
	most := ""
	if !several {
		most = `,"maxItems":1`
	}
	return `{"type":"array","minItems":1` + most + `,"items":{"anyOf":[` + strings.Join(list, ",") + `]}}`, nil
}

// maxSchema bounds the parameters of a function that are to be a grammar.
const maxSchema = 256 << 10

// movedSchema returns the schema of a function's arguments for another place in a
// document, to which its references to itself then lead.
func movedSchema(schema json.RawMessage, place string) (json.RawMessage, error) {
	if len(schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`), nil
	}
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("a function's parameters have %d bytes, but may have at most %d", len(schema), maxSchema)
	}
	typed := false
	moved, err := mapMembers(schema, func(name string, value json.RawMessage) (json.RawMessage, error) {
		typed = typed || name == "type"
		return moveReference(name, value, place)
	})
	if err == nil && !typed {
		moved = slices.Concat([]byte(`{"type":"object",`), moved[1:])
	}
	return moved, err
}

func moveReference(name string, value json.RawMessage, place string) (json.RawMessage, error) {
	if target, ok := textOf(value); ok && name == "$ref" && strings.HasPrefix(target, "#") {
		return json.Marshal(place + target[1:])
	}
	return moveReferences(value, place)
}

// moveReferences keeps the order of members: that of properties is the order in
// which they are written.
func moveReferences(raw json.RawMessage, place string) (json.RawMessage, error) {
	switch {
	case len(raw) == 0 || raw[0] != '{' && raw[0] != '[':
		return raw, nil
	case raw[0] == '[':
		list, err := parseList("", raw)
		for i := range list {
			if err == nil {
				list[i], err = moveReferences(list[i], place)
			}
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(list)
	}
	return mapMembers(raw, func(name string, value json.RawMessage) (json.RawMessage, error) {
		return moveReference(name, value, place)
	})
}

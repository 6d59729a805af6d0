package openai

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/core"
)

const choiceTools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"z":{"$ref":"#/$defs/n"},"a":{"enum":["#"]}},"$defs":{"n":{"anyOf":[{"type":"integer"},{"$ref":"#"}]}}}}},` +
	`{"type":"function","function":{"name":"g"}}]`

// named is a tool as tool_choice names it.
func named(function string) string {
	return `{"type":"function","function":{"name":"` + function + `"}}`
}

func TestToolChoice(t *testing.T) {
	const (
		f = `{"type":"object","properties":{"name":{"const":"f"},"parameters":{"type":"object","properties":{"z":{"$ref":"#/items/anyOf/0/properties/parameters/$defs/n"},` +
			`"a":{"enum":["#"]}},"$defs":{"n":{"anyOf":[{"type":"integer"},{"$ref":"#/items/anyOf/0/properties/parameters"}]}}}},` +
			`"required":["name","parameters"],"additionalProperties":false}`
		g = `{"type":"object","properties":{"name":{"const":"g"},"parameters":{"type":"object","properties":{},"additionalProperties":false}},` +
			`"required":["name","parameters"],"additionalProperties":false}`
	)
	for _, test := range []struct {
		members, schema, field string
		tools                  int
	}{
		{`"tool_choice":"auto"`, "", "", 2},
		{`"tool_choice":"none"`, "", "", 0},
		{`"tool_choice":null`, "", "", 2},
		{`"tool_choice":"required"`, `{"type":"array","minItems":1,"items":{"anyOf":[` + f + `,` + g + `]}}`, "tools", 2},
		{`"tool_choice":"required","parallel_tool_calls":false`, `{"type":"array","minItems":1,"maxItems":1,"items":{"anyOf":[` + f + `,` + g + `]}}`, "tools", 2},
		{`"tool_choice":{"type":"function","function":{"name":"g"}}`, `{"type":"array","minItems":1,"maxItems":1,"items":{"anyOf":[` + g + `]}}`, "tools[1].function.parameters", 2},
		{`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` + named("g") + `]}}`, "", "", 1},
		{`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[` + named("g") + `,` + named("g") + `]}}`, `{"type":"array","minItems":1,"items":{"anyOf":[` + g + `]}}`, "tools", 1},
		{`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` + named("g") + `,` + named("f") + `]}}`, "", "", 2},
	} {
		got := parsed(t, `{`+test.members+`,`+choiceTools+`,`+hi+`}`)
		want := core.Grammar{Text: test.schema, Field: test.field}
		if test.schema != "" {
			want.Kind = core.GrammarJSONSchema
		}
		if diff := cmp.Diff(want, got.Sampling.Grammar); diff != "" || len(got.Tools) != test.tools || got.MustCall != (test.schema != "") {
			t.Errorf("%s: %d tools, must call: %v, %s", test.members, len(got.Tools), got.MustCall, diff)
		}
	}
}

func TestToolChoiceErrors(t *testing.T) {
	long := `"tools":[{"type":"function","function":{"name":"f","parameters":{"$ref":"#","x":"` + strings.Repeat("x", maxSchema) + `"}}}]`
	for _, test := range []struct{ name, members, param, message string }{
		{"word", `"tool_choice":"any",` + choiceTools, "tool_choice", `got "any"`},
		{"number", `"tool_choice":1,` + choiceTools, "tool_choice", "must be a string or an object"},
		{"no tools", `"tool_choice":"required"`, "tool_choice", "there are no tools"},
		{"no tools for the named one", `"tool_choice":{"type":"function","function":{"name":"g"}}`, "tool_choice", "there are no tools"},
		{"kind", `"tool_choice":{"type":"custom"},` + choiceTools, "tool_choice.type", "custom"},
		{"nothing allowed", `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}},` + choiceTools, "tool_choice.allowed_tools.tools", "is empty"},
		{"allowed, no object", `"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]},` + choiceTools, "tool_choice.allowed_tools.mode", "must be auto or required"},
		{"allowed, mode", `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"none","tools":[` + named("f") + `]}},` + choiceTools, "tool_choice.allowed_tools.mode", `got "none"`},
		{"allowed, kind", `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` + named("f") + `,{"type":"mcp"}]}},` + choiceTools, "tool_choice.allowed_tools.tools[1].type", `got "mcp"`},
		{"allowed, a name", `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":["f"]}},` + choiceTools, "tool_choice.allowed_tools.tools[0]", "must be an object"},
		{"allowed, no name", `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function"}]}},` + choiceTools, "tool_choice.allowed_tools.tools[0].function.name", "1 to 64"},
		{"allowed, unknown", `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` + named("g") + `,` + named("h") + `]}},` + choiceTools, "tool_choice.allowed_tools.tools[1].function.name", "not among the tools"},
		{"no name", `"tool_choice":{"type":"function"},` + choiceTools, "tool_choice.function.name", "1 to 64"},
		{"unknown name", `"tool_choice":{"type":"function","function":{"name":"h"}},` + choiceTools, "tool_choice.function.name", "not among the tools"},
		{"and a grammar", `"tool_choice":"required","response_format":{"type":"json_object"},` + choiceTools, "tool_choice", "can't be one of response_format"},
		{"and min_tokens", `"tool_choice":"required","min_tokens":3,` + choiceTools, "min_tokens", "can't be given together with tools"},
		{"schema too long", `"tool_choice":"required",` + long, "tools", "may have at most"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseChat([]byte(`{`+test.members+`,`+hi+`}`), DefaultSampling())
			checkError(t, err, test.param, test.message)
			var e *Error
			if errors.As(err, &e); (e.Code == CodeUnsupported) != (test.name == "kind") {
				t.Errorf("code %v", e.Code)
			}
		})
	}
}

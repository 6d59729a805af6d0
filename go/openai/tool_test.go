package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func tool(function string) string { return `{"type":"function","function":` + function + `}` }

func TestParseTools(t *testing.T) {
	first := tool(`{"name":"get-weather_2","description":"d","strict":true,"parameters":{"type":"object"}}`)
	second := ` {"function": {"name":"g","parameters":null,"more":1}, "type":"function","x":[]}`
	got := parsed(t, `{"tools":[`+first+`,`+second+`],"tool_choice":"auto",`+hi+`}`)
	want := []Tool{
		{Raw: json.RawMessage(first), Name: "get-weather_2", Parameters: json.RawMessage(`{"type":"object"}`)},
		{Raw: json.RawMessage(strings.TrimSpace(second)), Name: "g"},
	}
	if diff := cmp.Diff(want, got.Tools); diff != "" {
		t.Error(diff)
	}
}

func TestParseToolErrors(t *testing.T) {
	call := func(function string) string {
		return `{"messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":` + function + `}]}]}`
	}
	tools := func(list ...string) string { return `{"tools":[` + strings.Join(list, ",") + `],` + hi + `}` }
	const fn, inCall = "tools[0].function", "messages[1].tool_calls[0].function"
	for _, test := range []struct{ name, body, param, message string }{
		{"no object", tools(`"f"`), "tools[0]", "must be an object"},
		{"no type", tools(`{"function":{"name":"f"}}`), "tools[0].type", `must be "function", got ""`},
		{"type", tools(`{"type":"web_search","function":{"name":"f"}}`), "tools[0].type", `got "web_search"`},
		{"type is a number", tools(`{"type":1}`), "tools[0].type", "must be a string"},
		{"no function", tools(`{"type":"function"}`), fn + ".name", "1 to 64 letters"},
		{"function is a string", tools(tool(`"f"`)), fn, "must be an object"},
		{"no name", tools(tool(`{}`)), fn + ".name", "1 to 64 letters"},
		{"name has a space", tools(tool(`{"name":"a b"}`)), fn + ".name", `got "a b"`},
		{"name is too long", tools(tool(`{"name":"` + strings.Repeat("x", 65) + `"}`)), fn + ".name", "1 to 64 letters"},
		{"name is a number", tools(tool(`{"name":1}`)), fn + ".name", "must be a string"},
		{"description", tools(tool(`{"name":"f","description":1}`)), fn + ".description", "must be a string"},
		{"strict", tools(tool(`{"name":"f","strict":"yes"}`)), fn + ".strict", "must be a boolean"},
		{"parameters", tools(tool(`{"name":"f","parameters":[]}`)), fn + ".parameters", "must be an object"},
		{"second of two", tools(tool(`{"name":"f"}`), tool(`{"name":"f"}`)), "tools[1].function.name", "two functions"},
		{"parallel calls", `{"parallel_tool_calls":1,` + hi + `}`, "parallel_tool_calls", "must be a boolean"},
		{"functions", `{"functions":[{"name":"f"}],` + hi + `}`, "functions", "give tools"},
		{"function_call", `{"function_call":{"name":"f"},` + hi + `}`, "function_call", "give tool_choice"},

		{"call without function", `{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]}`, "messages[0].tool_calls[0].function.name", "is missing"},
		{"call is a string", `{"messages":[{"role":"assistant","tool_calls":["f"]}]}`, "messages[0].tool_calls[0]", "must be an object"},
		{"call's function", call(`"f"`), inCall, "must be an object"},
		{"call's name", call(`{"name":1,"arguments":"{}"}`), inCall + ".name", "must be a string"},
		{"no arguments", call(`{"name":"f"}`), inCall + ".arguments", "is missing"},
		{"arguments are a list", call(`{"name":"f","arguments":[]}`), inCall + ".arguments", "must be a JSON object as a string"},

		{"budget", `{"thinking_budget":-1,` + hi + `}`, "thinking_budget", "at least 0"},
		{"budget of the template", `{"chat_template_kwargs":{"thinking_budget":"x"},` + hi + `}`, "chat_template_kwargs.thinking_budget", "must be a number"},
		{"separate", `{"separate_reasoning":1,` + hi + `}`, "separate_reasoning", "must be a boolean"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseChat([]byte(test.body), DefaultSampling())
			checkError(t, err, test.param, test.message)
		})
	}
}

func TestArgumentsOfCalls(t *testing.T) {
	for arguments, want := range map[string]string{
		`"{\"b\":1,\"a\":[2]}"`: `{"b":1,"a":[2]}`,
		`{"b":1}`:               `{"b":1}`,
		`""`:                    `{}`,
		// What models write that fail.
		`"{\"a\":"`: `"{\"a\":"`,
		`"[1]"`:     `"[1]"`,
		`"null"`:    `"null"`,
	} {
		body := `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f", "arguments": ` + arguments + ` ,"z":0},"id":"c"}]}]}`
		got := parsed(t, body).Messages[0].Extra["tool_calls"]
		if want := `[{"function":{"name":"f","arguments":` + want + `,"z":0},"id":"c"}]`; string(got) != want {
			t.Errorf("%s: got %s, want %s", arguments, got, want)
		}
	}
}

func TestThinkingBudget(t *testing.T) {
	for members, want := range map[string]int{
		`"thinking_budget":5,"chat_template_kwargs":{"thinking_budget":6}`: 5,
		`"chat_template_kwargs":{"thinking_budget":0}`:                     0,
		`"chat_template_kwargs":{}`:                                        -1,
	} {
		got := -1
		if b := parsed(t, `{`+members+`,`+hi+`}`).Reasoning.Budget; b != nil {
			got = *b
		}
		if got != want {
			t.Errorf("%s: got %d, want %d", members, got, want)
		}
	}
}

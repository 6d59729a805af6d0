package server

import (
	"encoding/json"
	"testing"
)

// TestMustCall: a random model, too, makes valid calls of the functions that it
// may call, streamed or not, with and without a parser and reasoning.
func TestMustCall(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"paint","parameters":{"type":"object","properties":{"colour":{"$ref":"#/$defs/colour"},"n":{"type":"integer","minimum":1,"maximum":9}},` +
		`"required":["colour","n"],"additionalProperties":false,"$defs":{"colour":{"enum":["red","blue"]}}}}},{"type":"function","function":{"name":"stop"}}],` +
		`"temperature":1,"max_tokens":400,`
	for _, cfg := range []Config{{}, {ToolCallParser: "qwen"}, {ReasoningParser: "deepseek-r1"}} {
		s, _ := caseServer(t, cfg)
		for choice, names := range map[string][]string{
			`"required","parallel_tool_calls":false`:          {"paint", "stop"},
			`{"type":"function","function":{"name":"paint"}}`: {"paint"},
			`{"type":"function","function":{"name":"stop"}}`:  {"stop"},
		} {
			for seed := range 5 {
				body := `"tool_choice":` + choice + `,` + tools + `"thinking_budget":4,"seed":` + string(rune('0'+seed)) + `,` + hi + `}`
				if cfg.ReasoningParser == "" {
					body = `"tool_choice":` + choice + `,` + tools + `"seed":` + string(rune('0'+seed)) + `,` + hi + `}`
				}
				whole, streamed := callsOf(t, s, `{`+body), callsOf(t, s, `{"stream":true,`+body)
				checkCalls(t, whole, names)
				if len(streamed) != 1 || streamed[0] != whole[0] {
					t.Errorf("streamed %v, whole %v", streamed, whole)
				}
			}
		}
		refused(t, s, chatPath, `{"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"nonsense"}}}}}],`+hi+`}`, "tools")
		alive(t, s)
	}
}

type functionCall struct{ Name, Arguments string }

func checkCalls(t *testing.T, calls []functionCall, names []string) {
	t.Helper()
	if len(calls) != 1 || calls[0].Name != names[0] && calls[0].Name != names[len(names)-1] {
		t.Fatalf("got %v, want a call of one of %v", calls, names)
	}
	var arguments struct {
		Colour string
		N      int
	}
	err := json.Unmarshal([]byte(calls[0].Arguments), &arguments)
	painted := (arguments.Colour == "red" || arguments.Colour == "blue") && arguments.N >= 1 && arguments.N <= 9
	if err != nil || (calls[0].Name == "paint") != painted || calls[0].Name == "stop" && calls[0].Arguments != "{}" {
		t.Errorf("arguments %s: %v", calls[0].Arguments, err)
	}
}

// callsOf returns an answer's calls; it must have no content, and end with them.
func callsOf(t *testing.T, s *Server, body string) []functionCall {
	t.Helper()
	w := do(s, "POST", chatPath, body)
	lines := []string{w.Body.String()}
	if w.Header().Get("Content-Type") == "text/event-stream" {
		lines = streamed(t, w.Body.String())
	}
	type part struct {
		Content   string
		ToolCalls []struct {
			Index    int
			Function functionCall
		} `json:"tool_calls"`
	}
	var calls []functionCall
	finish := ""
	for _, line := range lines {
		var doc struct {
			Choices []struct {
				Message, Delta part
				FinishReason   string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil || len(doc.Choices) != 1 {
			t.Fatalf("status %d, %v: %s", w.Code, err, line)
		}
		c := doc.Choices[0]
		finish += c.FinishReason
		if c.Message.Content+c.Delta.Content != "" {
			t.Errorf("content in %s", line)
		}
		for _, call := range append(c.Message.ToolCalls, c.Delta.ToolCalls...) {
			if call.Function.Name != "" {
				calls = append(calls, functionCall{Name: call.Function.Name})
			}
			calls[len(calls)-1].Arguments += call.Function.Arguments
		}
	}
	if finish != "tool_calls" {
		t.Errorf("finish_reason %q: %s", finish, w.Body)
	}
	return calls
}

package server

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdkapi "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// spelled is an answer of a token for each character.
func spelled(text string) []llm.Event {
	var events []llm.Event
	for i, c := range []rune(text) {
		ev := token(string(c), i+1)
		ev.Token = c
		events = append(events, ev)
	}
	return append(events, atEOS(len(events)))
}

// cut is an answer in the pieces that "|" ends.
func cut(text string) []llm.Event {
	var events []llm.Event
	for i, piece := range strings.Split(text, "|") {
		events = append(events, token(piece, i+1))
	}
	return append(events, atEOS(len(events)))
}

const (
	twoTools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"function","function":{"name":"g"}}]`
	twoCalls = "Ok.|\n|<tool_call>|\n{\"name\": \"|f|\", \"arguments\": {\"|a\": |1|}}\n|</tool_call>|\n|<tool_call>|{\"name\": \"g\", \"arguments\": {}}</tool_call>"
	thoughts = "<think>|\nHm|m.\n|</think>|\n\n|"
)

func TestToolTranscripts(t *testing.T) {
	both := Config{ToolCallParser: "qwen", ReasoningParser: "qwen3"}
	for _, test := range []struct {
		name, members string
		cfg           Config
		script        []llm.Event
	}{
		{"tools", `"stream":true,` + twoTools, both, cut(twoCalls)},
		{"tools_whole", twoTools, both, cut(twoCalls)},
		{"tools_not_given", `"stream":true`, both, cut("<tool_call>|{")},
		{"tools_one_only", `"parallel_tool_calls":false,` + twoTools, both, cut(twoCalls)},
		{"tools_cut", `"stream":true,` + twoTools, both, []llm.Event{token(`<tool_call>{"name":"f","arguments":{"a`, 1), finished(token("", 2), llm.FinishLength)}},
		{"tools_no_call", `"stream":true,` + twoTools, both, cut("<tool_call>|f")},
		{"tools_at_end", `"stream":true,` + twoTools, both, []llm.Event{token("", 1), {Text: `<tool_call>{"name":"f"}`, Finish: llm.FinishStop}}},
		{"reasoning", `"stream":true,"stream_options":{"include_usage":true}`, both, cut(thoughts + "Hi")},
		{"reasoning_whole", `"n":1`, both, cut(thoughts + "Hi")},
		{"reasoning_in_one_piece", `"stream":true,"stream_reasoning":false`, both, cut(thoughts + "Hi")},
		{"reasoning_not_apart", `"separate_reasoning":false`, both, cut(thoughts + "Hi")},
		{"reasoning_and_tools", twoTools, both, cut(thoughts + twoCalls)},
		{"reasoning_r1", `"stream":true`, Config{ReasoningParser: "deepseek-r1"}, cut("Hm|m</think>Hi")},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, newFake(test.script...), test.cfg)
			w := do(s, "POST", chatPath, `{`+test.members+`,`+hi+`}`)
			golden(t, "chat_"+test.name, createdPattern.ReplaceAllString(w.Body.String(), `"created":0`))
		})
	}
}

// TestKeepsMarks: the marks of some formats are special tokens.
func TestKeepsMarks(t *testing.T) {
	for format, want := range map[string][]string{"qwen": nil, "llama3": {"<|python_tag|>"}, "mistral": {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"}} {
		e := newFake(spelled(`[TOOL_CALLS]f[ARGS]{}`)...)
		s := newServer(t, e, Config{ToolCallParser: format})
		w := do(s, "POST", chatPath, `{`+twoTools+`,`+hi+`}`)
		if diff := cmp.Diff(want, e.requests[0].KeepSpecial); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
		if format == "mistral" && !regexp.MustCompile(`"tool_calls":\[\{"id":"[A-Za-z0-9]{9}",`).MatchString(w.Body.String()) {
			t.Errorf("no call's id is of nine letters: %s", w.Body)
		}
		do(s, "POST", chatPath, `{`+hi+`}`)
		if e.requests[1].KeepSpecial != nil {
			t.Errorf("%s, without tools: %v", format, e.requests[1].KeepSpecial)
		}
	}
}

// TestSocketToolCalls: a WebSocket brings the same chunks, and the same reason.
func TestSocketToolCalls(t *testing.T) {
	e := newFake(cut(twoCalls)...)
	s := newServer(t, e, Config{ToolCallParser: "qwen"})
	want := streamed(t, createdPattern.ReplaceAllString(do(s, "POST", chatPath, `{"stream":true,`+twoTools+`,`+hi+`}`).Body.String(), `"created":0`))
	url, _ := listen(t, s)
	conn := dial(t, url, "/ws/generate")
	command(t, conn, `{"v":1,"type":"start","id":"a","request":{%s,%s}}`, twoTools, hi)
	var got []string
	for _, ev := range untilEnd(t, conn) {
		if ev.Chunk != nil {
			got = append(got, createdPattern.ReplaceAllString(string(ev.Chunk), `"created":0`))
		}
		if ev.Type == openai.SocketFinish && ev.FinishReason != "tool_calls" {
			t.Errorf("finish_reason %q", ev.FinishReason)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSDKToolCalls: OpenAI's client puts streamed calls together.
func TestSDKToolCalls(t *testing.T) {
	answer := "Ok.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"é\"]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"
	s := newServer(t, newFake(spelled(answer)...), Config{ToolCallParser: "hermes"})
	s.newID = randomID
	url, client := listen(t, s)
	api := sdkapi.NewClient(option.WithBaseURL(url+"/v1"), option.WithHTTPClient(client), option.WithAPIKey("k"), option.WithMaxRetries(0))
	params := chatParams()
	params.N = sdkapi.Int(1)
	params.Tools = []sdkapi.ChatCompletionToolUnionParam{
		sdkapi.ChatCompletionFunctionTool(sdkapi.FunctionDefinitionParam{Name: "f"}), sdkapi.ChatCompletionFunctionTool(sdkapi.FunctionDefinitionParam{Name: "g"}),
	}
	whole, err := api.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	acc := sdkapi.ChatCompletionAccumulator{}
	stream := api.Chat.Completions.NewStreaming(t.Context(), params)
	var finished []string
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("the SDK can't add %s", stream.Current().RawJSON())
		}
		if call, ok := acc.JustFinishedToolCall(); ok {
			finished = append(finished, call.Name+call.Arguments)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`f{"a": [1, "é"]}`, `g{}`}, finished); diff != "" {
		t.Error(diff)
	}
	for name, c := range map[string]sdkapi.ChatCompletionChoice{"whole": whole.Choices[0], "streamed": acc.Choices[0]} {
		calls := c.Message.ToolCalls
		if c.FinishReason != "tool_calls" || c.Message.Content != "Ok." || len(calls) != 2 || calls[0].ID == calls[1].ID || calls[0].Type != "function" ||
			calls[0].Function.Arguments != `{"a": [1, "é"]}` || calls[1].Function.Name != "g" {
			t.Errorf("%s: %s %+v", name, c.FinishReason, c.Message)
		}
	}
}

package openai

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/core"
)

const hi = `"messages":[{"role":"user","content":"hi"}]`

func parsed(t *testing.T, body string) *ChatRequest {
	t.Helper()
	req, err := ParseChat([]byte(body), DefaultSampling())
	if err != nil {
		t.Fatalf("ParseChat(%s): %v", body, err)
	}
	return req
}

func TestParseChatDefaults(t *testing.T) {
	got := parsed(t, `{`+hi+`}`)
	want := &ChatRequest{
		Messages:  []Message{{Role: "user", Content: "hi"}},
		Reasoning: Reasoning{Separate: true, Stream: true}, ParallelCalls: true,
		Generation: Generation{N: 1, Sampling: core.SamplingParams{Temperature: 1, TopK: -1, TopP: 1, MaxTokens: math.MaxInt32, RepetitionPenalty: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseChatFillsIn(t *testing.T) {
	absent := core.SamplingParams{Temperature: 0.6, TopK: 20, TopP: 0.95, MinP: 0.05, MaxTokens: 9, RepetitionPenalty: 1}
	for _, test := range []struct {
		members string
		want    core.SamplingParams
	}{
		{`"top_k":null`, absent},
		{`"temperature":0,"top_p":1,"top_k":-1,"min_p":0,"max_tokens":7`, core.SamplingParams{TopK: -1, TopP: 1, MaxTokens: 7, RepetitionPenalty: 1}},
	} {
		got, err := ParseChat([]byte(`{`+test.members+`,`+hi+`}`), absent)
		if err != nil || !cmp.Equal(got.Sampling, test.want) {
			t.Errorf("%s: got %+v (%v), want %+v", test.members, got.Sampling, err, test.want)
		}
	}
}

func TestParseChatFields(t *testing.T) {
	got := parsed(t, ` {"model":"m","messages":[
		{"role":"developer","content":"be brief"},
		{"role":"user","name":"bo","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"arguments":"{\"b\": 1, \"a\":0.50}","name":"f"},"x":0.5}]},
		{"role":"tool","tool_call_id":"c1","content":"7"}],
		"temperature":0,"top_p":0.9,"top_k":40,"min_p":0.1,"max_tokens":7,"seed":18446744073709551615,
		"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},
		"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto","n":2,"stop":["x","é"],"stop_token_ids":[7,8.0],
		"chat_template_kwargs":{"enable_thinking":false,"thinking_budget":9},"separate_reasoning":false,"stream_reasoning":false,
		"parallel_tool_calls":false} `)
	seed := uint64(math.MaxUint64)
	want := &ChatRequest{
		Generation: Generation{
			Model: "m", N: 2, Stop: []string{"x", "é"}, StopTokenIDs: []int32{7, 8},
			Sampling: core.SamplingParams{TopK: 40, TopP: 0.9, MinP: 0.1, MaxTokens: 7, RepetitionPenalty: 1, IgnoreEOS: true, Seed: &seed},
			Stream:   true, IncludeUsage: true, ContinuousUsage: true,
		},
		Messages: []Message{
			{Role: "system", Content: "be brief"},
			{Role: "user", Content: "ab", Extra: map[string]json.RawMessage{"name": json.RawMessage(`"bo"`)}},
			{Role: "assistant", Extra: map[string]json.RawMessage{"tool_calls": json.RawMessage(`[{"id":"c1","function":{"arguments":{"b":1,"a":0.50},"name":"f"},"x":0.5}]`)}},
			{Role: "tool", Content: "7", Extra: map[string]json.RawMessage{"tool_call_id": json.RawMessage(`"c1"`)}},
		},
		Tools:          []Tool{{Raw: json.RawMessage(`{"type":"function","function":{"name":"f"}}`), Name: "f"}},
		TemplateKwargs: map[string]json.RawMessage{"enable_thinking": json.RawMessage(`false`), "thinking_budget": json.RawMessage(`9`)},
		Reasoning:      Reasoning{Budget: new(9)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Each rule of the package's documentation that makes a body mean something
// else than it seems to.
func TestParseChatReading(t *testing.T) {
	maxTokens := func(r *ChatRequest) any { return r.Sampling.MaxTokens }
	content := func(r *ChatRequest) any { return r.Messages[0].Content }
	tests := []struct {
		name, body string
		field      func(*ChatRequest) any
		want       any
	}{
		{"null is absent", `{"max_tokens":null,"stop":null,"stream_options":null,` + hi + `}`, maxTokens, math.MaxInt32},
		{"integral float", `{"max_tokens":16.0,` + hi + `}`, maxTokens, 16},
		{"exponent", `{"max_tokens":1e2,` + hi + `}`, maxTokens, 100},
		{"beyond 32 bits", `{"max_tokens":2147483648,` + hi + `}`, maxTokens, math.MaxInt32},
		{"beyond 64 bits", `{"max_tokens":99999999999999999999,` + hi + `}`, maxTokens, math.MaxInt32},
		{"newer name alone", `{"max_completion_tokens":5,` + hi + `}`, maxTokens, 5},
		{"newer name wins", `{"max_completion_tokens":5,"max_tokens":9,` + hi + `}`, maxTokens, 5},
		{"newer name is null", `{"max_completion_tokens":null,"max_tokens":9,` + hi + `}`, maxTokens, 9},
		{"other case is another field", `{"MAX_TOKENS":1,"Max_Tokens":2,` + hi + `}`, maxTokens, math.MaxInt32},
		{"last of two counts", `{"max_tokens":1,"max_tokens":2,` + hi + `}`, maxTokens, 2},
		{"escaped name", `{"max\u005ftokens":3,` + hi + `}`, maxTokens, 3},
		{"unknown fields", `{"input_length_override":5,"user":"u","metadata":{"a":"b"},"extra_body":{"top_k":1},` + hi + `}`,
			func(r *ChatRequest) any { return r.Sampling.TopK }, -1},
		{"lone surrogate", `{"messages":[{"role":"user","content":"a\ud800b"}]}`, content, "a\ufffdb"},
		{"invalid UTF-8", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\xffb\"}]}", content, "a\ufffdb"},
		{"surrogate pair", `{"messages":[{"role":"user","content":"\ud83d\ude80"}]}`, content, "🚀"},
		{"empty content", `{"messages":[{"role":"user","content":""}]}`, content, ""},
		{"prompt", `{"prompt":"once","messages":null}`, func(r *ChatRequest) any { return r.Prompt }, "once"},
		{"no tools", `{"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none",` + hi + `}`, func(r *ChatRequest) any { return len(r.Tools) }, 0},
		{"empty stream options", `{"stream":true,"stream_options":{},` + hi + `}`, func(r *ChatRequest) any { return r.IncludeUsage }, false},
		{"usage declined", `{"stream":true,"stream_options":{"include_usage":false},` + hi + `}`, func(r *ChatRequest) any { return r.IncludeUsage }, false},
		{"top_k huge", `{"top_k":1000000000000,` + hi + `}`, func(r *ChatRequest) any { return r.Sampling.TopK }, math.MaxInt32},
		{"seed", `{"seed":7.0,` + hi + `}`, func(r *ChatRequest) any { return *r.Sampling.Seed }, uint64(7)},
		{"seed beyond 2^53", `{"seed":9007199254740993,` + hi + `}`, func(r *ChatRequest) any { return *r.Sampling.Seed }, uint64(9007199254740993)},
		{"nesting at the limit", `{"zz":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + `,` + hi + `}`, content, "hi"},
		{"brackets in strings", `{"zz":"` + strings.Repeat("[", 9000) + `\"[",` + hi + `}`, content, "hi"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.field(parsed(t, test.body)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestParseChatNeutralValues(t *testing.T) {
	for _, members := range []string{
		`"stop":[],"stop_token_ids":[],"min_tokens":0,"n":1`,
		`"logprobs":false,"top_logprobs":0,"logit_bias":{}`,
		`"presence_penalty":0.0,"frequency_penalty":0,"repetition_penalty":1.0`,
		`"response_format":{ "type": "text" },"tool_choice":"auto","function_call":"none","functions":[]`,
		`"modalities":["text"],"audio":null,"add_generation_prompt":true,"continue_final_message":false`,
	} {
		parsed(t, `{`+members+`,`+hi+`}`)
	}
}

func TestParseChatErrors(t *testing.T) {
	user := func(content string) string { return `{"messages":[{"role":"user","content":` + content + `}]}` }
	with := func(member string) string { return `{` + member + `,` + hi + `}` }
	tests := []struct {
		name, body, param, message string
	}{
		{"empty body", ``, "", "not valid JSON"},
		{"cut", `{"messages":[{"role":"us`, "", "not valid JSON"},
		{"two values", `{` + hi + `}{}`, "", "not valid JSON"},
		{"byte order mark", "\ufeff{" + hi + `}`, "", "not valid JSON"},
		{"a list", ` [1]`, "", "must be a JSON object, got a list"},
		{"null", `null`, "", "must be a JSON object, got null"},
		{"NaN", with(`"temperature":NaN`), "", "not valid JSON"},
		{"Infinity", with(`"temperature":-Infinity`), "", "not valid JSON"},
		{"nesting", with(`"zz":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)), "", "nests deeper than 256"},
		{"nesting without end", `{"zz":` + strings.Repeat("[", 1<<20), "", "nests deeper than 256"},
		{"neither", `{"model":"m"}`, "messages", "is missing"},
		{"both", `{"prompt":"p",` + hi + `}`, "prompt", "together with messages"},
		{"prompt of ids", `{"prompt":[1,2]}`, "prompt", "must be a string, got a list"},
		{"no messages", `{"messages":[]}`, "messages", "is empty"},
		{"messages is a string", `{"messages":"hi"}`, "messages", "must be a list, got a string"},
		{"message is a string", `{"messages":["hi"]}`, "messages[0]", "must be an object, got a string"},
		{"no role", `{"messages":[{"content":"x"}]}`, "messages[0].role", "is missing"},
		{"unknown role", `{"messages":[{"role":"robot","content":"x"}]}`, "messages[0].role", `got "robot"`},
		{"role is a number", `{"messages":[{"role":1,"content":"x"}]}`, "messages[0].role", "must be a string"},
		{"no content", `{"messages":[{"role":"user","content":"a"},{"role":"user"}]}`, "messages[1].content", "is missing"},
		{"null content", user(`null`), "messages[0].content", "is missing"},
		{"assistant without content", `{"messages":[{"role":"assistant","content":null,"tool_calls":[]}]}`, "messages[0].content", "is missing"},
		{"tool calls", `{"messages":[{"role":"assistant","content":null,"tool_calls":"f"}]}`, "messages[0].tool_calls", "must be a list"},
		{"content is a number", user(`5`), "messages[0].content", "got the number 5"},
		{"no parts", user(`[]`), "messages[0].content", "empty list"},
		{"part is a string", user(`["a"]`), "messages[0].content[0]", "must be an object"},
		{"image", user(`[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]`), "messages[0].content[1].type", `got "image_url"`},
		{"part without text", user(`[{"type":"text"}]`), "messages[0].content[0].text", "is missing"},
		{"part with null text", user(`[{"type":"text","text":null}]`), "messages[0].content[0].text", "is missing"},
		{"max_tokens 0", with(`"max_tokens":0`), "max_tokens", "at least 1, got 0"},
		{"max_tokens negative", with(`"max_tokens":-1`), "max_tokens", "at least 1, got -1"},
		{"max_tokens string", with(`"max_tokens":"16"`), "max_tokens", "must be a number, got a string"},
		{"max_tokens boolean", with(`"max_tokens":true`), "max_tokens", "must be a number, got a boolean"},
		{"max_tokens fraction", with(`"max_tokens":1.5`), "max_tokens", "must be an integer, got 1.5"},
		{"max_tokens infinite", with(`"max_tokens":1e400`), "max_tokens", "finite"},
		{"max_completion_tokens", with(`"max_completion_tokens":0`), "max_completion_tokens", "at least 1"},
		{"temperature infinite", with(`"temperature":1e400`), "temperature", "finite"},
		{"temperature negative", with(`"temperature":-0.1`), "temperature", "-0.1"},
		{"top_p 0", with(`"top_p":0`), "top_p", "(0, 1]"},
		{"top_p above 1", with(`"top_p":1.0001`), "top_p", "(0, 1]"},
		{"top_k", with(`"top_k":-2`), "top_k", "-2"},
		{"min_p", with(`"min_p":1`), "min_p", "[0, 1)"},
		{"seed negative", with(`"seed":-1`), "seed", "got -1"},
		{"seed too large", with(`"seed":18446744073709551616`), "seed", "18446744073709551615"},
		{"seed string", with(`"seed":"7"`), "seed", "must be a number"},
		{"stream", with(`"stream":"yes"`), "stream", "must be a boolean"},
		{"stream options", with(`"stream_options":[]`), "stream_options", "must be an object"},
		{"include_usage", with(`"stream_options":{"include_usage":1}`), "stream_options.include_usage", "must be a boolean"},
		{"model", with(`"model":1`), "model", "must be a string"},
		{"tools", with(`"tools":{}`), "tools", "must be a list, got an object"},
		{"template arguments", with(`"chat_template_kwargs":[]`), "chat_template_kwargs", "must be an object"},
		{"template messages", with(`"chat_template_kwargs":{"messages":[]}`), "chat_template_kwargs.messages", "can't be set"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseChat([]byte(test.body), DefaultSampling())
			checkError(t, err, test.param, test.message)
		})
	}
}

func checkError(t *testing.T, err error, param, message string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	got := ""
	if e.Param != nil {
		got = *e.Param
	}
	if e.Status != http.StatusBadRequest || e.Type != TypeInvalidRequest || got != param {
		t.Errorf("got status %d, type %q, param %q; want param %q", e.Status, e.Type, got, param)
	}
	if !strings.Contains(e.Message, message) || !strings.HasPrefix(e.Message, param) {
		t.Errorf("message %q should start with the param and contain %q", e.Message, message)
	}
}

func TestParseChatUnsupported(t *testing.T) {
	for _, member := range []string{
		`"functions":[{}]`,
		`"modalities":["text","audio"]`, `"continue_final_message":true`,
		`"functions":["` + strings.Repeat("5", 1000) + `"]`,
	} {
		_, err := ParseChat([]byte(`{`+member+`,`+hi+`}`), DefaultSampling())
		name, _, _ := strings.Cut(strings.TrimPrefix(member, `"`), `"`)
		checkError(t, err, name, "not supported")
		var e *Error
		if errors.As(err, &e); e.Code != CodeUnsupported {
			t.Errorf("%s: code %v, want %s", member, e.Code, CodeUnsupported)
		}
	}
}

func TestParseChatPenaltiesAndLogprobs(t *testing.T) {
	got := parsed(t, `{"presence_penalty":-2,"frequency_penalty":0.5,"repetition_penalty":1.3,"min_tokens":3,"max_tokens":9,
		"logit_bias":{"50":-100,"7":2.5},"logprobs":true,"top_logprobs":20,`+hi+`}`)
	want := DefaultSampling()
	want.PresencePenalty, want.FrequencyPenalty, want.RepetitionPenalty, want.MinTokens, want.MaxTokens = -2, 0.5, 1.3, 3, 9
	want.LogitBias = []core.TokenBias{{Token: 7, Bias: 2.5}, {Token: 50, Bias: -100}}
	want.Logprobs, want.TopLogprobs = true, 20
	if diff := cmp.Diff(want, got.Sampling); diff != "" {
		t.Error(diff)
	}
	for member, param := range map[string]string{
		`"presence_penalty":2.1`: "presence_penalty", `"presence_penalty":"1"`: "presence_penalty",
		`"frequency_penalty":-2.1`: "frequency_penalty", `"repetition_penalty":0`: "repetition_penalty",
		`"repetition_penalty":2.1`: "repetition_penalty", `"min_tokens":-1`: "min_tokens",
		`"min_tokens":5,"max_tokens":4`: "min_tokens", `"logit_bias":[]`: "logit_bias",
		`"logit_bias":{"a":1}`: "logit_bias", `"logit_bias":{"-1":1}`: "logit_bias", `"logit_bias":{"1":101}`: "logit_bias",
		`"logit_bias":{"1":"x"}`: "logit_bias.1", `"logit_bias":{"99999999999":1}`: "logit_bias",
		`"logprobs":1`: "logprobs", `"top_logprobs":1`: "top_logprobs",
		`"logprobs":true,"top_logprobs":21`: "top_logprobs", `"logprobs":true,"top_logprobs":-1`: "top_logprobs",
	} {
		_, err := ParseChat([]byte(`{`+member+`,`+hi+`}`), DefaultSampling())
		checkError(t, err, param, "")
	}
}

func TestParseChatBounds(t *testing.T) {
	var members strings.Builder
	for i := range maxMembers + 1 {
		members.WriteString(`"k` + strings.Repeat("x", i%7) + string(rune('0'+i%10)) + strings.Repeat("y", i/70) + `":0,`)
	}
	tests := []struct{ name, body, param, message string }{
		{"messages", `{"messages":[` + strings.Repeat(`{},`, maxElements) + `{}]}`, "messages", "more than 65536 elements"},
		{"members", `{` + members.String() + hi + `}`, "", "more than 4096 members"},
		{"free form", `{"tools":["` + strings.Repeat("x", maxFreeForm) + `"],` + hi + `}`, "tools", "longer than 4194304 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseChat([]byte(test.body), DefaultSampling())
			checkError(t, err, test.param, test.message)
		})
	}
}

func TestErrorBodyShape(t *testing.T) {
	body, err := json.Marshal(ErrorBody{Invalid("a.b", "is %d", 1).WithCode("c")})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"error":{"message":"a.b: is 1","type":"invalid_request_error","param":"a.b","code":"c"}}`
	if string(body) != want {
		t.Errorf("got %s, want %s", body, want)
	}
	body, _ = json.Marshal(ErrorBody{Errorf(503, "loading")})
	if want := `{"error":{"message":"loading","type":"server_error","param":null,"code":null}}`; string(body) != want {
		t.Errorf("got %s, want %s", body, want)
	}
}

// FuzzParseChat checks that any body either gives a request whose values are in
// range, or an error of status 400 with a message.
func FuzzParseChat(f *testing.F) {
	f.Add([]byte(`{` + hi + `}`))
	f.Add([]byte(`{"prompt":"p","max_tokens":16.0,"seed":1e3,"stop":[],"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"\ud800"}]}],"tools":[{"a":1e5}]}`))
	f.Add([]byte(`{"a":[[[{"b":"\"["}]]],"a":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := ParseChat(body, DefaultSampling())
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Status != http.StatusBadRequest || e.Message == "" {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if err := req.Sampling.Validate(); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(body) || nesting(body) > MaxDepth {
			t.Fatal("accepted a body that is not valid")
		}
	})
}

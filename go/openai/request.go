package openai

import (
	"encoding/json"
	"reflect"

	"github.com/minisgl/minisgl/go/internal/core"
)

// ChatRequest is a valid request to /v1/chat/completions.
type ChatRequest struct {
	Generation
	Messages []Message // nil if Prompt is given
	Prompt   string    // used as it is, without a chat template

	Tools          []Tool                     // that the model may call; none if tool_choice is "none"
	ParallelCalls  bool                       // several in one answer
	MustCall       bool                       // the answer is a list of calls, by Sampling.Grammar
	TemplateKwargs map[string]json.RawMessage // for the chat template
	Reasoning      Reasoning
}

// DefaultSampling is OpenAI's sampling: of all tokens, at temperature 1, with no
// limit but the context's.
func DefaultSampling() core.SamplingParams {
	return core.SamplingParams{Temperature: 1, TopK: -1, TopP: 1, MaxTokens: maxInteger, RepetitionPenalty: 1}
}

// ParseChat reads and checks the body of a chat request. What it doesn't say of
// sampling is taken from absent. Its errors are *Error, of status 400. See the
// package's documentation for the rules.
func ParseChat(data []byte, absent core.SamplingParams) (*ChatRequest, error) {
	f, err := parseBody(data)
	if err != nil {
		return nil, err
	}
	req := &ChatRequest{
		Generation:     parseGeneration(f, absent),
		TemplateKwargs: parseTemplateKwargs(f),
	}
	req.Reasoning = parseReasoning(f)
	parseTooling(f, req)
	parseMessagesOrPrompt(f, req)
	parseChatLogprobs(f, &req.Sampling)
	refuse(f, unsupported)
	refuseFunctions(f)
	if f.err != nil {
		return nil, f.err
	}
	return req, nil
}

// refuseFunctions refuses the older form of tools, unless it asks for nothing.
func refuseFunctions(f *fields) {
	for member, replaced := range map[string]string{"functions": "tools", "function_call": "tool_choice"} {
		raw, ok := f.raw(member)
		if ok && !isOneOf(raw, []string{"[]", `"auto"`, `"none"`}) {
			f.fail(Invalid(f.name(member), "is not supported; give %s, which has replaced it", replaced).WithCode(CodeUnsupported))
		}
	}
}

func parseMessagesOrPrompt(f *fields, req *ChatRequest) {
	_, hasMessages := f.raw("messages")
	_, hasPrompt := f.raw("prompt")
	switch {
	case hasMessages && hasPrompt:
		f.fail(Invalid("prompt", "can't be given together with messages"))
	case hasPrompt:
		req.Prompt = f.text("prompt")
	case hasMessages:
		req.Messages = parseMessages(f)
	default:
		f.fail(Invalid("messages", "is missing"))
	}
}

func parseChatLogprobs(f *fields, p *core.SamplingParams) {
	p.Logprobs, p.TopLogprobs = f.flag("logprobs"), f.integer("top_logprobs", 0)
	checkSampling(f, *p, nil)
}

// parseTemplateKwargs refuses the names that the request itself settles.
func parseTemplateKwargs(f *fields) map[string]json.RawMessage {
	const member = "chat_template_kwargs"
	f.freeForm(member)
	kwargs := f.object(member)
	for _, name := range []string{"messages", "tools", "add_generation_prompt"} {
		if _, taken := kwargs.members[name]; taken {
			f.fail(Invalid(kwargs.name(name), "can't be set here"))
		}
	}
	return kwargs.members
}

// field is one that would change the result, with the values that ask for
// nothing, as JSON; null is one for all of them.
type field struct {
	name    string
	neutral []string
}

// unsupported lists the fields that can't be honoured.
var unsupported = []field{
	{"modalities", []string{`["text"]`}},
	{"audio", nil},
	{"add_generation_prompt", []string{"true"}},
	{"continue_final_message", []string{"false"}},
}

func refuse(f *fields, list []field) {
	for _, field := range list {
		raw, ok := f.raw(field.name)
		if !ok || isOneOf(raw, field.neutral) {
			continue
		}
		f.fail(Invalid(f.name(field.name), "the value %s is not supported; leave the field out", brief(raw)).WithCode(CodeUnsupported))
	}
}

// isOneOf compares as JSON values, so that 0.0 is 0.
func isOneOf(raw json.RawMessage, values []string) bool {
	const longest = 256
	if len(raw) > longest {
		return false
	}
	var got any
	if json.Unmarshal(raw, &got) != nil {
		return false
	}
	for _, value := range values {
		var want any
		if json.Unmarshal([]byte(value), &want) == nil && reflect.DeepEqual(got, want) {
			return true
		}
	}
	return false
}

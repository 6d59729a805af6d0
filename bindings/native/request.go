package native

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// request is one prompt in one of three forms: text, token ids, or a
// conversation for the model's chat template.
type request struct {
	Text     *string   `json:"text"`
	TokenIDs []int32   `json:"token_ids"`
	Messages []message `json:"messages"`
	Template template  `json:"template"`
	Params   params    `json:"params"`
	Name     string    `json:"name"` // what errors call it, "prompts[3]"
}

// params are llm.SamplingParams under their Python names. All are given.
type params struct {
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	MinP        float64 `json:"min_p"`
	MaxTokens   int     `json:"max_tokens"`
	IgnoreEOS   bool    `json:"ignore_eos"`
	Seed        *uint64 `json:"seed"`

	PresencePenalty   float64      `json:"presence_penalty"`
	FrequencyPenalty  float64      `json:"frequency_penalty"`
	RepetitionPenalty float64      `json:"repetition_penalty"`
	LogitBias         [][2]float64 `json:"logit_bias"` // pairs of a token and its bias
	MinTokens         int          `json:"min_tokens"`
	Logprobs          *int         `json:"logprobs"`        // alternatives to report beside each token; null: no log-probabilities
	PromptLogprobs    bool         `json:"prompt_logprobs"` // for the prompt's tokens, too

	JSONSchema    *string `json:"json_schema"` // null, or one of these
	Regex         *string `json:"regex"`
	EBNF          *string `json:"ebnf"`
	StructuralTag *string `json:"structural_tag"`
}

// template is tokenizer.TemplateOptions. Values stay JSON, which keeps the order
// of their keys.
type template struct {
	AddGenerationPrompt bool                       `json:"add_generation_prompt"`
	Tools               []json.RawMessage          `json:"tools"`
	Kwargs              map[string]json.RawMessage `json:"kwargs"`
}

func (t template) options() tokenizer.TemplateOptions {
	o := tokenizer.TemplateOptions{AddGenerationPrompt: t.AddGenerationPrompt, Kwargs: anyValues(t.Kwargs)}
	for _, tool := range t.Tools {
		o.Tools = append(o.Tools, tool)
	}
	return o
}

func anyValues(m map[string]json.RawMessage) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// message is tokenizer.Message as Python dicts spell it: role, content (text,
// null, or a list of text parts, which are joined) and what else the model's
// template reads.
type message map[string]json.RawMessage

func (m message) parse() (msg tokenizer.Message, err error) {
	if err := json.Unmarshal(m["role"], &msg.Role); err != nil {
		return msg, fmt.Errorf("role must be a string, got %s", m["role"])
	}
	if msg.Content, err = contentText(m["content"]); err != nil {
		return msg, err
	}
	msg.Extra = anyValues(m)
	delete(msg.Extra, "role")
	delete(msg.Extra, "content")
	return msg, nil
}

// contentText accepts a missing content too: an assistant's call of a tool may
// have none.
func contentText(content json.RawMessage) (string, error) {
	var text string
	if content == nil || json.Unmarshal(content, &text) == nil { // null leaves ""
		return text, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", fmt.Errorf("content must be a string or a list of text parts, got %s", content)
	}
	for i, part := range parts {
		if part.Type != "text" || part.Text == nil {
			return "", fmt.Errorf("content[%d] has type %q; only text parts, with type and text, are supported", i, part.Type)
		}
		text += *part.Text
	}
	return text, nil
}

// resolve makes the engine's requests: conversations are rendered, and all texts
// encoded.
func resolve(e *llm.LLM, list []request) ([]llm.Request, error) {
	reqs := make([]llm.Request, len(list))
	for i, r := range list {
		ids, err := r.prompt(e)
		if err != nil {
			return nil, err
		}
		reqs[i] = llm.Request{TokenIDs: ids, Params: r.Params.sampling()}
	}
	return reqs, nil
}

func (r request) prompt(e *llm.LLM) ([]int32, error) {
	switch {
	case r.Messages != nil:
		ids, err := encodeChat(e, r.Messages, r.Template)
		return ids, withField(err, r.Name)
	case r.Text != nil:
		ids, err := e.Tokenizer().Encode(*r.Text, true)
		if err != nil {
			return nil, &llm.InvalidError{Field: r.Name, Message: err.Error()}
		}
		return append([]int32{}, ids...), nil // never nil: the engine would encode a text
	case r.TokenIDs != nil:
		return r.TokenIDs, nil
	}
	return nil, fail(kindType, "%s needs text, token_ids or messages", r.Name)
}

func encodeChat(e *llm.LLM, list []message, t template) ([]int32, error) {
	msgs, err := parseMessages(list)
	if err != nil {
		return nil, err
	}
	return e.EncodeChat(msgs, t.options())
}

func parseMessages(list []message) ([]tokenizer.Message, error) {
	msgs := make([]tokenizer.Message, len(list))
	for i, m := range list {
		var err error
		if msgs[i], err = m.parse(); err != nil {
			return nil, &kindError{Kind: kindInvalid, Field: fmt.Sprintf("messages[%d]", i), Message: err.Error()}
		}
	}
	return msgs, nil
}

func (p params) sampling() llm.SamplingParams {
	out := llm.SamplingParams{
		Temperature: p.Temperature,
		TopK:        p.TopK,
		TopP:        p.TopP,
		MinP:        p.MinP,
		MaxTokens:   p.MaxTokens,
		IgnoreEOS:   p.IgnoreEOS,
		Seed:        p.Seed,

		PresencePenalty:   p.PresencePenalty,
		FrequencyPenalty:  p.FrequencyPenalty,
		RepetitionPenalty: p.RepetitionPenalty,
		MinTokens:         p.MinTokens,
		Grammar:           p.grammar(),
	}
	for _, pair := range p.LogitBias {
		out.LogitBias = append(out.LogitBias, llm.TokenBias{Token: int32(pair[0]), Bias: pair[1]})
	}
	if p.Logprobs != nil {
		out.Logprobs, out.TopLogprobs = true, *p.Logprobs
	}
	if p.PromptLogprobs {
		out.PromptLogprobs = new(0)
	}
	return out
}

func (p params) grammar() llm.Grammar {
	switch {
	case p.JSONSchema != nil:
		return llm.Grammar{Kind: llm.GrammarJSONSchema, Text: *p.JSONSchema}
	case p.Regex != nil:
		return llm.Grammar{Kind: llm.GrammarRegex, Text: *p.Regex}
	case p.EBNF != nil:
		return llm.Grammar{Kind: llm.GrammarEBNF, Text: *p.EBNF}
	case p.StructuralTag != nil:
		return llm.Grammar{Kind: llm.GrammarStructural, Text: *p.StructuralTag}
	}
	return llm.Grammar{}
}

// withField puts a conversation's name in the place of "messages", with which
// the field of an error about one begins.
func withField(err error, name string) error {
	if err == nil || name == "" {
		return err
	}
	known := classify(err)
	if known.Kind == kindInvalid && strings.HasPrefix(known.Field, "messages") {
		known.Field = name + strings.TrimPrefix(known.Field, "messages")
	}
	return known
}

// withNames puts the names of requests in the place of llm's "prompts[3]".
func withNames(err error, list []request) error {
	if err == nil {
		return nil
	}
	known := classify(err)
	for i, r := range list {
		if known.Field == fmt.Sprintf("prompts[%d]", i) && r.Name != "" {
			known.Field = r.Name
			break
		}
	}
	return known
}

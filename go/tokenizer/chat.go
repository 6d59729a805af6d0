package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ardanlabs/jinja"
)

// Message is one message of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", "tool", ...
	Content string
	// Extra holds the other fields as the template is to see them, such as
	// tool_calls, tool_call_id, name and reasoning_content. Values are what
	// encoding/json reads into an any; a json.RawMessage keeps the order of its
	// keys. A nil value counts as absent. The keys role and content are ignored.
	Extra map[string]any
}

// TemplateOptions are the inputs of a chat template beside the messages.
type TemplateOptions struct {
	AddGenerationPrompt bool // end with the beginning of an answer
	// Tools are JSON values; a json.RawMessage keeps the order of its keys.
	Tools []any
	// Kwargs are further variables of the template, such as enable_thinking.
	// They cannot replace messages, tools, documents, add_generation_prompt or
	// the functions that templates call: such entries are ignored.
	Kwargs map[string]any
}

// ErrNoChatTemplate is returned for a chat with a model without a template.
var ErrNoChatTemplate = errors.New("tokenizer: the model has no chat template; send a plain prompt instead")

// HasChatTemplate tells whether the model comes with a chat template.
func (t *Tokenizer) HasChatTemplate() bool { return t.templates["default"] != nil }

// EncodeChat renders the conversation and returns its ids. The template writes
// BOS and the like itself, so Encode adds no special tokens.
func (t *Tokenizer) EncodeChat(msgs []Message, o TemplateOptions) ([]int32, error) {
	text, err := t.RenderChat(msgs, o)
	if err != nil {
		return nil, err
	}
	return t.Encode(text, false)
}

// RenderChat returns the prompt that the model's chat template makes of a
// conversation: what transformers' apply_chat_template with tokenize=False
// gives. When the template refuses the conversation, errors.As finds a
// *TemplateError with the template's words.
func (t *Tokenizer) RenderChat(msgs []Message, o TemplateOptions) (string, error) {
	tmpl := t.templates["default"]
	if named := t.templates["tool_use"]; named != nil && len(o.Tools) > 0 {
		tmpl = named
	}
	if tmpl == nil {
		return "", ErrNoChatTemplate
	}
	vars, err := t.variables(msgs, o)
	if err != nil {
		return "", fmt.Errorf("tokenizer: chat: %w", err)
	}
	text, err := render(tmpl, vars)
	if err != nil {
		return "", fmt.Errorf("tokenizer: render the chat template: %w", err)
	}
	return text, nil
}

func render(t *jinja.Template, vars map[string]jinja.Value) (text string, err error) {
	defer recoverTo(&err)
	if text, err = t.RenderValues(vars); err != nil {
		return "", err
	}
	if len(text) > maxOutputBytes {
		return "", fmt.Errorf("the text has %d bytes, more than the %d allowed", len(text), maxOutputBytes)
	}
	return text, nil
}

// variables returns all that the template sees. Later entries win: the
// caller's kwargs over the names of tokens, the rest over both.
func (t *Tokenizer) variables(msgs []Message, o TemplateOptions) (map[string]jinja.Value, error) {
	c := converter{left: maxOutputBytes}
	vars := make(map[string]jinja.Value)
	for name, text := range t.names {
		vars[name] = jinja.NewString(text)
	}
	for name, v := range o.Kwargs {
		value, err := c.value(v, 0)
		if err != nil {
			return nil, fmt.Errorf("template variable %q: %w", name, err)
		}
		vars[name] = value
	}
	messages := make([]jinja.Value, len(msgs))
	for i, m := range msgs {
		value, err := m.value(&c)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		messages[i] = value
	}
	vars["messages"] = jinja.NewList(messages)
	vars["documents"] = jinja.None()
	vars["add_generation_prompt"] = jinja.NewBool(o.AddGenerationPrompt)
	vars["tools"] = jinja.None()
	if len(o.Tools) > 0 {
		tools, err := c.value(o.Tools, 0)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		vars["tools"] = tools
	}
	maps.Copy(vars, templateFuncs(time.Now))
	return vars, nil
}

// reasoningNames are the fields that reasoning comes under. transformers
// copies the first one that is set to the other names that templates read.
var reasoningNames = []string{"reasoning_content", "thinking", "reasoning"}

// value returns the message as the template sees it.
func (m *Message) value(c *converter) (jinja.Value, error) {
	v := jinja.NewDict()
	d := v.AsDict()
	for name, text := range map[string]string{"role": m.Role, "content": m.Content} {
		if err := c.spend(len(text)); err != nil {
			return v, fmt.Errorf("%s: %w", name, err)
		}
	}
	d.Set("role", jinja.NewString(m.Role))
	d.Set("content", jinja.NewString(m.Content))
	for _, name := range sortedKeys(m.Extra) {
		field := m.Extra[name]
		if name == "role" || name == "content" {
			continue
		}
		value, err := c.value(field, 0)
		if err != nil {
			return v, fmt.Errorf("%s: %w", name, err)
		}
		if !value.IsNone() {
			d.Set(name, value)
		}
	}
	for _, name := range reasoningNames {
		if reasoning, ok := d.Get(name); ok {
			if !d.Has("thinking") {
				d.Set("thinking", reasoning)
			}
			d.Set("reasoning_content", reasoning)
			break
		}
	}
	return v, nil
}

package native

import "github.com/minisgl/minisgl/go/llm"

// text is the argument of Encode, Decode and RenderChat; each reads its part.
type text struct {
	Text     string    `json:"text"`
	TokenIDs []int32   `json:"token_ids"`
	Messages []message `json:"messages"`
	Template template  `json:"template"`
	Special  bool      `json:"special"` // Encode: add special tokens; Decode: leave them out
}

// Encode returns the token ids of a text, or of a conversation if messages are
// given, as a JSON list.
func Encode(engine int64, arg string) (out string, err error) {
	defer guard(&err)
	return withText(engine, arg, func(e *llm.LLM, t text) (any, error) {
		if t.Messages != nil {
			return encodeChat(e, t.Messages, t.Template)
		}
		return e.Tokenizer().Encode(t.Text, t.Special)
	})
}

// Decode returns the text of token ids as a JSON string.
func Decode(engine int64, arg string) (out string, err error) {
	defer guard(&err)
	return withText(engine, arg, func(e *llm.LLM, t text) (any, error) {
		return e.Tokenizer().Decode(t.TokenIDs, t.Special)
	})
}

// RenderChat returns what the model's chat template makes of messages as a JSON
// string.
func RenderChat(engine int64, arg string) (out string, err error) {
	defer guard(&err)
	return withText(engine, arg, func(e *llm.LLM, t text) (any, error) {
		msgs, err := parseMessages(t.Messages)
		if err != nil {
			return nil, err
		}
		return e.Tokenizer().RenderChat(msgs, t.Template.options())
	})
}

func withText(engine int64, arg string, run func(*llm.LLM, text) (any, error)) (string, error) {
	e, err := engineOf(engine)
	if err != nil {
		return "", err
	}
	var t text
	if err := decode(arg, &t); err != nil {
		return "", err
	}
	v, err := run(e.LLM, t)
	if err != nil {
		return "", err
	}
	return encode(v)
}

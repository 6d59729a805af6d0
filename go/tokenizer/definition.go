package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// maxDefinitionBytes bounds a tokenizer.json; the largest in use have 40 MB.
	maxDefinitionBytes = 256 << 20
	// maxID bounds the token table; the largest vocabularies in use have 2^18 ids.
	maxID = 1<<24 - 1
)

// definition is a tokenizer.json: its fields as they are, beside the parts
// that are read or changed here.
type definition struct {
	fields map[string]json.RawMessage
	added  []addedToken
	model  map[string]int32 // id of each token of the model's vocabulary
}

// addedToken is an entry of added_tokens in a tokenizer.json.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// parseDefinition reads a tokenizer.json.
func parseDefinition(data []byte) (*definition, error) {
	def := &definition{}
	if err := json.Unmarshal(data, &def.fields); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if err := unmarshalField(def.fields["added_tokens"], &def.added); err != nil {
		return nil, fmt.Errorf("tokenizer.json: added_tokens: %w", err)
	}
	var err error
	if def.model, err = parseModel(def.fields["model"]); err != nil {
		return nil, fmt.Errorf("tokenizer.json: model: %w", err)
	}
	return def, nil
}

// unmarshalField reads a field that may be absent.
func unmarshalField(field json.RawMessage, v any) error {
	if len(field) == 0 {
		return nil
	}
	return json.Unmarshal(field, v)
}

// parseModel returns the ids of a model's vocabulary, which is an object of
// ids by token or, for Unigram, a list of pairs of token and score.
func parseModel(field json.RawMessage) (map[string]int32, error) {
	var model struct {
		Vocab    json.RawMessage `json:"vocab"`
		UnkToken *string         `json:"unk_token"`
	}
	if err := unmarshalField(field, &model); err != nil {
		return nil, err
	}
	if len(model.Vocab) == 0 {
		return nil, errors.New("it has no vocab")
	}
	var ids map[string]int32
	if model.Vocab[0] == '[' {
		var pairs [][]json.RawMessage
		if err := json.Unmarshal(model.Vocab, &pairs); err != nil {
			return nil, fmt.Errorf("vocab: %w", err)
		}
		ids = make(map[string]int32, len(pairs))
		for i, pair := range pairs {
			var text string
			if len(pair) != 2 || json.Unmarshal(pair[0], &text) != nil {
				return nil, fmt.Errorf("vocab: entry %d is not a pair of token and score", i)
			}
			ids[text] = int32(i)
		}
	} else if err := json.Unmarshal(model.Vocab, &ids); err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	// The library gives no ids at all for a text that needs a missing one.
	if unk := model.UnkToken; unk != nil && *unk != "" {
		if _, ok := ids[*unk]; !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocab", *unk)
		}
	}
	return ids, nil
}

// id returns the id of the token text, which added tokens decide first.
func (d *definition) id(text string) (int32, bool) {
	for _, a := range d.added {
		if a.Content == text {
			return a.ID, true
		}
	}
	id, ok := d.model[text]
	return id, ok
}

// addSpecial makes text, a token of the model's vocabulary, an added token
// that is special, unless it is an added token already. A text outside the
// vocabulary has no row in the model's embedding and is left alone.
func (d *definition) addSpecial(text string) {
	for _, a := range d.added {
		if a.Content == text {
			return
		}
	}
	if id, ok := d.model[text]; ok {
		d.added = append(d.added, addedToken{ID: id, Content: text, Special: true})
	}
}

// table lists the tokens by id. Like the library it gives an added token
// precedence, and calls special every token spelled like a special one.
func (d *definition) table() ([]token, error) {
	top := int32(-1)
	for text, id := range d.model {
		if id < 0 || id > maxID {
			return nil, fmt.Errorf("token %q has id %d, outside 0..%d", text, id, maxID)
		}
		top = max(top, id)
	}
	special := map[string]bool{}
	for _, a := range d.added {
		if a.ID < 0 || a.ID > maxID {
			return nil, fmt.Errorf("added token %q has id %d, outside 0..%d", a.Content, a.ID, maxID)
		}
		top = max(top, a.ID)
		special[a.Content] = special[a.Content] || a.Special
	}
	tokens := make([]token, top+1)
	for text, id := range d.model {
		tokens[id] = token{text: text, present: true, special: special[text]}
	}
	for _, a := range d.added {
		tokens[a.ID] = token{text: a.Content, present: true, special: special[a.Content]}
	}
	return tokens, nil
}

// surround makes encoding with special tokens add BOS in front and EOS behind,
// as transformers does when a configuration says so itself. Empty: none.
func (d *definition) surround(bos, eos string) error {
	type piece map[string]map[string]any
	special := map[string]any{}
	around := func(text string, kind int) []piece {
		id, ok := d.id(text)
		if text == "" || !ok {
			return nil
		}
		special[text] = map[string]any{"id": text, "ids": []int32{id}, "tokens": []string{text}}
		return []piece{{"SpecialToken": {"id": text, "type_id": kind}}}
	}
	sequence := func(name string, kind int) []piece {
		return append(append(around(bos, kind), piece{"Sequence": {"id": name, "type_id": kind}}), around(eos, kind)...)
	}
	single := sequence("A", 0)
	return d.set("post_processor", map[string]any{
		"type":           "TemplateProcessing",
		"single":         single,
		"pair":           append(append([]piece{}, single...), sequence("B", 1)...),
		"special_tokens": special,
	})
}

// encode returns the tokenizer.json that the library loads: without truncation
// and padding, which are settings of single calls, and with NUL unescaped.
func (d *definition) encode() ([]byte, error) {
	if err := d.unescapeNUL(); err != nil {
		return nil, err
	}
	if err := d.set("added_tokens", append([]addedToken{}, d.added...)); err != nil {
		return nil, err
	}
	d.fields["truncation"] = json.RawMessage("null")
	d.fields["padding"] = json.RawMessage("null")
	return marshal(d.fields)
}

// unescapeNUL puts the inverse of escapeNUL in front of the normalizer.
func (d *definition) unescapeNUL() error {
	replace := func(from, to string) any {
		return map[string]any{"type": "Replace", "pattern": map[string]string{"String": from}, "content": to}
	}
	steps := []any{replace(nulMark, "\x00"), replace(escapedNUL, nulMark), replace(escapedEsc, escapeMark)}
	if own := d.fields["normalizer"]; len(own) > 0 && string(own) != "null" {
		steps = append(steps, own)
	}
	return d.set("normalizer", map[string]any{"type": "Sequence", "normalizers": steps})
}

func (d *definition) set(field string, v any) error {
	data, err := marshal(v)
	if err != nil {
		return fmt.Errorf("tokenizer.json: %s: %w", field, err)
	}
	d.fields[field] = data
	return nil
}

// marshal is json.Marshal without its escapes for HTML.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

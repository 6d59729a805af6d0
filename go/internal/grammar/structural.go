package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// structuralTag is a structural_tag in one of two forms: xgrammar's, a format, or
// sglang's older one, free text in which a trigger must be the beginning of a tag that
// has it as its own beginning.
type structuralTag struct {
	Type       string          `json:"type"`
	Format     json.RawMessage `json:"format"`
	Triggers   []string        `json:"triggers"`
	Structures []struct {
		Begin  string          `json:"begin"`
		Schema json.RawMessage `json:"schema"`
		End    string          `json:"end"`
	} `json:"structures"`
}

// structuralToLark writes a structural tag as a Lark grammar.
func structuralToLark(text string) (string, error) {
	var tag structuralTag
	if err := json.Unmarshal([]byte(text), &tag); err != nil {
		return "", fmt.Errorf("is not valid: %w", err)
	}
	switch {
	case len(tag.Format) > 0 && len(tag.Structures)+len(tag.Triggers) > 0:
		return "", errors.New("has a format and structures; give one of them")
	case len(tag.Format) > 0:
		return formatToLark(tag.Format)
	case len(tag.Structures) == 0 || len(tag.Triggers) == 0:
		return "", errors.New("needs a format, or structures, each with begin, schema and end, and triggers")
	}
	var bodies []string // of each trigger: the tags that it begins
	used := make([]bool, len(tag.Structures))
	for i, trigger := range tag.Triggers {
		if trigger == "" {
			return "", fmt.Errorf("has an empty trigger, triggers[%d]", i)
		}
		var tags []string
		for k, s := range tag.Structures {
			rest, ok := strings.CutPrefix(s.Begin, trigger)
			if !ok {
				continue
			}
			schema, err := checkSchema(string(s.Schema))
			if err != nil {
				return "", fmt.Errorf("structures[%d].schema %w", k, err)
			}
			used[k] = true
			tags = append(tags, quoteAll(rest)+" %json "+jsonSpacing(schema)+" "+quoteAll(s.End))
		}
		bodies = append(bodies, strings.Join(tags, "\n  | "))
	}
	for k, ok := range used {
		if !ok {
			return "", fmt.Errorf("structures[%d].begin, %q, begins with none of the triggers", k, tag.Structures[k].Begin)
		}
	}
	return structuralRules(tag.Triggers, bodies), nil
}

// structuralRules are the rules of text in which triggers are followed by their
// bodies.
func structuralRules(triggers, bodies []string) string {
	var b strings.Builder
	b.WriteString("start: part* tail\ntail: /(.|\\n)*/\npart: ")
	for i := range triggers {
		if i > 0 {
			b.WriteString(" | ")
		}
		fmt.Fprintf(&b, "tag_%d", i)
	}
	b.WriteByte('\n')
	for i, trigger := range triggers {
		body := bodies[i]
		if body == "" {
			continue
		}
		fmt.Fprintf(&b, "tag_%d: trigger_%d (%s)\n", i, i, body)
		fmt.Fprintf(&b, "trigger_%d[lazy]: /(.|\\n)*%s/\n", i, quoteRegex(trigger))
	}
	return b.String()
}

// quoteAll writes a text as a Lark string.
func quoteAll(text string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(text) != nil {
		return `""` // a string can always be encoded
	}
	return strings.TrimSpace(b.String())
}

// quoteRegex writes a text as a regular expression that matches it alone.
func quoteRegex(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteString(quoteRune(r))
	}
	return b.String()
}

func quoteRune(r rune) string {
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return string(r)
	}
	return fmt.Sprintf(`\x{%X}`, r)
}

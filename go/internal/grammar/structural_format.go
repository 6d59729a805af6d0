package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// maxFormats is how deep the formats of a structural tag may nest.
const maxFormats = 32

// format is a node of xgrammar's form of a structural tag
// (https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html); which members count,
// its type says.
type format struct {
	Type           string            `json:"type"`
	Value          string            `json:"value"`
	JSONSchema     json.RawMessage   `json:"json_schema"`
	Pattern        *string           `json:"pattern"`
	Grammar        string            `json:"grammar"`
	Elements       []json.RawMessage `json:"elements"`
	Begin          string            `json:"begin"`
	Content        json.RawMessage   `json:"content"`
	End            string            `json:"end"`
	Triggers       []string          `json:"triggers"`
	Tags           []json.RawMessage `json:"tags"`
	Separator      string            `json:"separator"`
	AtLeastOne     bool              `json:"at_least_one"`
	StopAfterFirst bool              `json:"stop_after_first"`
}

// formatWriter writes formats as rules of a Lark grammar.
type formatWriter struct {
	rules strings.Builder
	count int
}

// formatToLark writes a structural tag's format as a Lark grammar.
func formatToLark(raw json.RawMessage) (string, error) {
	w := &formatWriter{}
	body, err := w.write("format", raw, "", 1)
	if err != nil {
		return "", err
	}
	return "start: " + body + "\n" + w.rules.String(), nil
}

// define adds a rule, whose name is given what is appended to it: attributes, as in
// [lazy].
func (w *formatWriter) define(attributes, body string) string {
	w.count++
	name := fmt.Sprintf("r%d", w.count)
	fmt.Fprintf(&w.rules, "%s%s: %s\n", name, attributes, body)
	return name
}

// parseFormat reads the node at a path.
func parseFormat(path string, raw json.RawMessage, depth int) (format, error) {
	var f format
	if depth > maxFormats {
		return f, fmt.Errorf("%s nests deeper than %d formats", path, maxFormats)
	}
	if len(raw) == 0 {
		return f, fmt.Errorf("%s is missing", path)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return f, fmt.Errorf("%s is not supported as it stands: %w", path, err)
	}
	return f, nil
}

// write returns what matches the format at a path and, behind it, the text of end:
// where text is free, end is where it stops.
func (w *formatWriter) write(path string, raw json.RawMessage, end string, depth int) (string, error) {
	f, err := parseFormat(path, raw, depth)
	if err != nil {
		return "", err
	}
	switch f.Type {
	case "const_string":
		return quoteAll(f.Value + end), nil
	case "any_text":
		return w.freeText(end), nil
	case "json_schema":
		schema, err := checkSchema(string(f.JSONSchema))
		if err != nil {
			return "", fmt.Errorf("%s.json_schema %w", path, err)
		}
		return "%json " + jsonSpacing(schema) + " " + quoteAll(end), nil
	case "regex":
		if f.Pattern == nil {
			return "", fmt.Errorf("%s.pattern is missing", path)
		}
		return w.define("", larkRegex("(?:"+escapeSlashes(asciiClasses(unanchored(*f.Pattern)))+")"+quoteRegex(end))), nil
	case "grammar":
		lark, err := ebnfToLark(f.Grammar)
		if err != nil {
			return "", fmt.Errorf("%s.grammar %w", path, err)
		}
		return "%lark {\n" + lark + "\n} " + quoteAll(end), nil
	case "sequence":
		return w.sequence(path, f, end, depth)
	case "or":
		return w.alternatives(path, f, end, depth)
	case "tag":
		body, err := w.write(path+".content", f.Content, f.End, depth+1)
		return "(" + quoteAll(f.Begin) + " " + body + " " + quoteAll(end) + ")", err
	case "triggered_tags":
		return w.triggered(path, f, end, depth)
	case "tags_with_separator":
		return w.separated(path, f, end, depth)
	}
	return "", fmt.Errorf("%s.type is %q, but must be any_text, const_string, json_schema, regex, grammar, sequence, or, tag, triggered_tags or tags_with_separator", path, f.Type)
}

// freeText matches any text up to end, or to the end of all.
func (w *formatWriter) freeText(end string) string {
	if end == "" {
		return w.define("", `/(.|\n)*/`)
	}
	return w.define("[lazy]", larkRegex(`(.|\n)*`+quoteRegex(end)))
}

func (w *formatWriter) sequence(path string, f format, end string, depth int) (string, error) {
	if len(f.Elements) == 0 {
		return "", fmt.Errorf("%s.elements is empty", path)
	}
	parts, last := make([]string, len(f.Elements)), len(f.Elements)-1
	for i, raw := range f.Elements {
		at, ending := fmt.Sprintf("%s.elements[%d]", path, i), ""
		if i == last {
			ending = end
		} else if open, err := endless(at, raw, depth+1); err != nil {
			return "", err
		} else if open {
			return "", fmt.Errorf("%s is free text, which must come last or be a tag's content: nothing says where it ends", at)
		}
		body, err := w.write(at, raw, ending, depth+1)
		if err != nil {
			return "", err
		}
		parts[i] = body
	}
	return "(" + strings.Join(parts, " ") + ")", nil
}

// endless reports whether the format at a path may end in free text, which without
// an end goes on for ever.
func endless(path string, raw json.RawMessage, depth int) (bool, error) {
	f, err := parseFormat(path, raw, depth)
	if err != nil {
		return false, err
	}
	switch f.Type {
	case "any_text":
		return true, nil
	case "triggered_tags":
		return !f.AtLeastOne || !f.StopAfterFirst, nil
	case "tag":
		if f.End != "" {
			return false, nil
		}
		return endless(path+".content", f.Content, depth+1)
	case "sequence", "or":
		first := 0
		if f.Type == "sequence" {
			first = max(0, len(f.Elements)-1)
		}
		for i := first; i < len(f.Elements); i++ {
			open, err := endless(fmt.Sprintf("%s.elements[%d]", path, i), f.Elements[i], depth+1)
			if open || err != nil {
				return open, err
			}
		}
	}
	return false, nil
}

func (w *formatWriter) alternatives(path string, f format, end string, depth int) (string, error) {
	if len(f.Elements) == 0 {
		return "", fmt.Errorf("%s.elements is empty", path)
	}
	parts := make([]string, len(f.Elements))
	for i, raw := range f.Elements {
		body, err := w.write(fmt.Sprintf("%s.elements[%d]", path, i), raw, end, depth+1)
		if err != nil {
			return "", err
		}
		parts[i] = body
	}
	return "(" + strings.Join(parts, " | ") + ")", nil
}

// writtenTag is a tag whose content and end are a rule.
type writtenTag struct{ begin, rest string }

// tags writes the contents of a format's tags, each once however often it is used.
func (w *formatWriter) tags(path string, f format, depth int) ([]writtenTag, error) {
	if len(f.Tags) == 0 {
		return nil, fmt.Errorf("%s.tags is empty", path)
	}
	list := make([]writtenTag, len(f.Tags))
	for i, raw := range f.Tags {
		at := fmt.Sprintf("%s.tags[%d]", path, i)
		tag, err := parseFormat(at, raw, depth+1)
		if err != nil {
			return nil, err
		}
		if tag.Type != "" && tag.Type != "tag" {
			return nil, fmt.Errorf("%s.type is %q, but must be tag", at, tag.Type)
		}
		body, err := w.write(at+".content", tag.Content, tag.End, depth+2)
		if err != nil {
			return nil, err
		}
		list[i] = writtenTag{tag.Begin, w.define("", body)}
	}
	return list, nil
}

func anyOf(tags []writtenTag) string {
	parts := make([]string, len(tags))
	for i, tag := range tags {
		parts[i] = quoteAll(tag.begin) + " " + tag.rest
	}
	return "(" + strings.Join(parts, " | ") + ")"
}

// separated matches tags with a separator between them and nothing else.
func (w *formatWriter) separated(path string, f format, end string, depth int) (string, error) {
	tags, err := w.tags(path, f, depth)
	if err != nil {
		return "", err
	}
	tag := w.define("", anyOf(tags))
	body := tag
	if !f.StopAfterFirst {
		body = fmt.Sprintf("%s (%s %s)*", tag, quoteAll(f.Separator), tag)
	}
	body = "(" + body + ")"
	if !f.AtLeastOne {
		body += "?"
	}
	return "(" + body + " " + quoteAll(end) + ")", nil
}

// triggered matches free text in which a trigger begins one of the tags that begin
// with it. With at_least_one the first tag comes at once.
func (w *formatWriter) triggered(path string, f format, end string, depth int) (string, error) {
	if len(f.Triggers) == 0 {
		return "", fmt.Errorf("%s.triggers is empty", path)
	}
	tags, err := w.tags(path, f, depth)
	if err != nil {
		return "", err
	}
	part, err := w.afterTriggers(path, f.Triggers, tags)
	if err != nil {
		return "", err
	}
	switch {
	case f.AtLeastOne && f.StopAfterFirst:
		return "(" + anyOf(tags) + " " + quoteAll(end) + ")", nil
	case f.AtLeastOne:
		return "(" + anyOf(tags) + " " + part + "* " + w.freeText(end) + ")", nil
	case f.StopAfterFirst:
		return "(" + part + " " + quoteAll(end) + " | " + w.freeText(end) + ")", nil
	}
	return "(" + part + "* " + w.freeText(end) + ")", nil
}

// afterTriggers is a rule of text up to a trigger, and the rest of one of its tags.
func (w *formatWriter) afterTriggers(path string, triggers []string, tags []writtenTag) (string, error) {
	var parts []string
	begun := make([]bool, len(tags))
	for i, trigger := range triggers {
		if trigger == "" {
			return "", fmt.Errorf("%s.triggers[%d] is empty", path, i)
		}
		var own []writtenTag
		for k, tag := range tags {
			rest, ok := strings.CutPrefix(tag.begin, trigger)
			if !ok {
				continue
			}
			if begun[k] {
				return "", fmt.Errorf("%s.tags[%d].begin, %q, begins with several of the triggers", path, k, tag.begin)
			}
			begun[k] = true
			own = append(own, writtenTag{rest, tag.rest})
		}
		if len(own) == 0 {
			return "", fmt.Errorf("%s.triggers[%d], %q, begins none of the tags", path, i, trigger)
		}
		parts = append(parts, w.freeText(trigger)+" "+anyOf(own))
	}
	for k, ok := range begun {
		if !ok {
			return "", fmt.Errorf("%s.tags[%d].begin, %q, begins with none of the triggers", path, k, tags[k].begin)
		}
	}
	return w.define("", strings.Join(parts, " | ")), nil
}

// larkRegex writes a regular expression, in which slashes are escaped, as Lark's.
func larkRegex(pattern string) string { return "/" + pattern + "/" }

// escapeSlashes puts a backslash before each slash that has none.
func escapeSlashes(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			b.WriteByte('\\')
			i++
		case pattern[i] == '/':
			b.WriteByte('\\')
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/minisgl/minisgl/go/internal/core"
)

// translate writes a grammar in a language of llguidance's.
func translate(g core.Grammar) (source, error) {
	if len(g.Text) > maxTextBytes {
		return source{}, fmt.Errorf("has %d bytes, but may have at most %d", len(g.Text), maxTextBytes)
	}
	if strings.ContainsRune(g.Text, 0) {
		return source{}, errors.New("has a NUL character, which no grammar may")
	}
	switch g.Kind {
	case core.GrammarJSONObject:
		return source{"json_schema", jsonSpacing(`{"type":"object"}`)}, nil
	case core.GrammarJSONSchema:
		schema, err := checkSchema(g.Text)
		return source{"json_schema", jsonSpacing(schema)}, err
	case core.GrammarRegex:
		return source{"regex", asciiClasses(unanchored(g.Text))}, nil
	case core.GrammarEBNF:
		lark, err := ebnfToLark(g.Text)
		return source{"lark", lark}, err
	case core.GrammarStructural:
		lark, err := structuralToLark(g.Text)
		return source{"lark", lark}, err
	}
	return source{}, fmt.Errorf("is of the unknown kind %q", g.Kind)
}

// checkSchema returns a schema without space around it. That true stands for
// any value is written as an object.
func checkSchema(text string) (string, error) {
	var raw json.RawMessage
	err := json.Unmarshal([]byte(text), &raw)
	var syntax *json.SyntaxError
	switch schema := string(bytes.TrimSpace(raw)); {
	case errors.As(err, &syntax):
		return "", fmt.Errorf("is not valid JSON: %w, at byte %d", err, syntax.Offset)
	case err != nil:
		return "", fmt.Errorf("is not valid JSON: %w", err)
	case schema == "true":
		return "{}", nil
	case schema[0] != '{':
		return "", errors.New("must be a JSON schema, which is an object or true")
	default:
		return schema, nil
	}
}

// jsonSpacing makes a schema's JSON have the spaces of Python's json.dumps: ", "
// and ": ", and none elsewhere. Free spaces are what a small model fills its
// output with. A schema that has x-guidance itself decides for itself.
func jsonSpacing(schema string) string {
	if schema == "" {
		return ""
	}
	rest := strings.TrimLeft(schema[1:], " \t\r\n")
	comma := ","
	if rest == "}" {
		comma = ""
	}
	return `{"x-guidance":{"whitespace_flexible":false,"item_separator":", ","key_separator":": "}` + comma + rest
}

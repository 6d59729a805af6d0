package core

import "cmp"

// GrammarKind says what a Grammar's text is. The values are the names that
// sglang gives them.
type GrammarKind string

const (
	GrammarJSONSchema GrammarKind = "json_schema"    // a JSON schema
	GrammarJSONObject GrammarKind = "json_object"    // no text: any JSON object
	GrammarRegex      GrammarKind = "regex"          // a regular expression that the whole output matches
	GrammarEBNF       GrammarKind = "ebnf"           // rules in GBNF (root ::= …), or in Lark's syntax (start: …)
	GrammarStructural GrammarKind = "structural_tag" // free text in which tags begin and end what has a JSON schema, as JSON
)

// Grammar is what a request's output must be; the zero value is any text. It
// ends the request where nothing more may follow, also if IgnoreEOS is set.
type Grammar struct {
	Kind GrammarKind
	Text string
	// Field is what errors call it; "": the kind.
	Field string
}

// Name is what errors call the grammar.
func (g Grammar) Name() string { return cmp.Or(g.Field, string(g.Kind)) }

func (g Grammar) validate() error {
	switch g.Kind {
	case "", GrammarJSONObject, GrammarJSONSchema, GrammarRegex, GrammarEBNF, GrammarStructural:
		return nil
	}
	return Invalid("grammar", "has the unknown kind %q", g.Kind)
}

// Matcher says which tokens may follow a request's output. It is used by one
// goroutine at a time.
type Matcher interface {
	// Mask sets bit id%32 of word id/32 of dst for each token id that may follow
	// output, and clears all others. output must begin with that of the call
	// before. After an error, which is final, dst is undefined.
	Mask(dst []int32, output []int32) error
	// Forced returns the token that must follow output: the only one that Mask would
	// allow, or one that ends the sequence where only such are allowed. It is false
	// where several may follow, or where that there is one takes a mask to know. output
	// must begin with that of the call before.
	Forced(output []int32) (token int32, ok bool)
	// Close frees its memory. A second Close does nothing.
	Close()
}

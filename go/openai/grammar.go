package openai

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/core"
)

// grammarField is a field that gives a grammar, and how its text is read.
type grammarField struct {
	name string
	kind core.GrammarKind
	read func(f *fields, member string) string
}

// grammarFields are those of a request: sglang's names and vLLM's old ones.
var grammarFields = []grammarField{
	{"json_schema", core.GrammarJSONSchema, (*fields).document},
	{"regex", core.GrammarRegex, (*fields).text},
	{"ebnf", core.GrammarEBNF, (*fields).text},
	{"structural_tag", core.GrammarStructural, (*fields).document},
	{"guided_json", core.GrammarJSONSchema, (*fields).document},
	{"guided_regex", core.GrammarRegex, (*fields).text},
	{"guided_grammar", core.GrammarEBNF, (*fields).text},
	{"guided_choice", core.GrammarRegex, (*fields).choices},
}

// structuredOutputs are those of vLLM's object of this name.
var structuredOutputs = []grammarField{
	{"json", core.GrammarJSONSchema, (*fields).document},
	{"regex", core.GrammarRegex, (*fields).text},
	{"choice", core.GrammarRegex, (*fields).choices},
	{"grammar", core.GrammarEBNF, (*fields).text},
	{"json_object", core.GrammarJSONObject, func(*fields, string) string { return "" }},
	{"structural_tag", core.GrammarStructural, (*fields).document},
}

const anyObject = "$$ANY$$" // sglang's json_schema for any JSON object

// parseGrammar reads the one field that gives a grammar, if any does.
func parseGrammar(f *fields) core.Grammar {
	g := parseGrammarFields(f, grammarFields, parseResponseFormat(f))
	return parseStructuredOutputs(f, g)
}

// parseStructuredOutputs reads vLLM's object, whose options about white space mean
// what is done anyway, or are refused.
func parseStructuredOutputs(f *fields, before core.Grammar) core.Grammar {
	const member = "structured_outputs"
	if _, ok := f.raw(member); !ok {
		return before
	}
	o := f.object(member)
	g := parseGrammarFields(o, structuredOutputs, before)
	known := append([]grammarField{{name: "disable_any_whitespace"}}, structuredOutputs...)
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		if _, given := o.raw(name); given && !slices.ContainsFunc(known, func(k grammarField) bool { return k.name == name }) {
			o.fail(Invalid(o.name(name), "is not supported; leave it out").WithCode(CodeUnsupported))
		}
	}
	if o.err == nil && g == before {
		o.fail(Invalid(o.path, "gives no grammar: it needs one of json, regex, choice, grammar, json_object (true) and structural_tag"))
	}
	f.failAs(o)
	return g
}

// parseGrammarFields reads those of a list that are there; before is the grammar that
// the request has so far.
func parseGrammarFields(f *fields, list []grammarField, before core.Grammar) core.Grammar {
	g := before
	for _, field := range list {
		if _, ok := f.raw(field.name); !ok || field.kind == core.GrammarJSONObject && !f.flag(field.name) {
			continue
		}
		if g.Kind != "" {
			f.fail(Invalid(f.name(field.name), "can't be given together with %s", g.Field))
			return g
		}
		g = core.Grammar{Kind: field.kind, Text: field.read(f, field.name), Field: f.name(field.name)}
		if g.Kind == core.GrammarJSONSchema && g.Text == anyObject {
			g.Kind, g.Text = core.GrammarJSONObject, ""
		}
	}
	return g
}

// parseResponseFormat reads OpenAI's field for grammars. A schema binds the output
// also where strict is not true: what OpenAI calls best effort is exact here.
func parseResponseFormat(f *fields) core.Grammar {
	const member = "response_format"
	if _, ok := f.raw(member); !ok {
		return core.Grammar{}
	}
	o := f.object(member)
	g := core.Grammar{Field: o.path}
	switch kind := o.text("type"); kind {
	case "text":
		g = core.Grammar{}
	case "json_object":
		g.Kind = core.GrammarJSONObject
	case "json_schema":
		inner := o.object("json_schema")
		g = core.Grammar{Kind: core.GrammarJSONSchema, Field: inner.name("schema"), Text: inner.document("schema")}
		if g.Text == "" && inner.err == nil {
			inner.fail(Invalid(g.Field, "is missing"))
		}
		o.failAs(inner)
	case "structural_tag":
		g.Kind, g.Text = core.GrammarStructural, f.document(member)
	default:
		o.fail(Invalid(o.name("type"), "must be text, json_object, json_schema or structural_tag, got %q", brief([]byte(kind))))
	}
	f.failAs(o)
	return g
}

// choices returns a regular expression for one of several strings.
func (f *fields) choices(member string) string {
	var quoted []string
	for _, raw := range f.list(member) {
		choice, ok := textOf(raw)
		if !ok || choice == "" {
			f.mistyped(member, "a list of strings that are not empty", raw)
			return ""
		}
		quoted = append(quoted, regexp.QuoteMeta(choice))
	}
	if len(quoted) == 0 && f.err == nil {
		f.fail(Invalid(f.name(member), "is empty; give at least one string"))
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

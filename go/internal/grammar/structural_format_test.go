package grammar

import (
	"errors"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
)

const (
	getTag = `{"type":"tag","begin":"<f=get>","content":{"type":"json_schema","json_schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}},"end":"</f>"}`
	putTag = `{"begin":"<f=put>","content":{"type":"json_schema","json_schema":{"enum":["on","off"]}},"end":"</f>"}`
	both   = `"triggers":["<f="],"tags":[` + getTag + `,` + putTag + `]`
)

// TestStructuralFormats: xgrammar's form, each kind of format by texts that fit it and
// texts that don't.
func TestStructuralFormats(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		name, format string
		good, bad    []string
	}{
		{"const_string", `{"type":"const_string","value":"a/\"b\"\n"}`, []string{"a/\"b\"\n"}, []string{"", "a/", "a/\"b\"\nx"}},
		{"any_text", `{"type":"any_text"}`, []string{"", "any\n<text>"}, nil},
		{"json_schema", `{"type":"json_schema","json_schema":{"type":"integer"}}`, []string{"12"}, []string{"", "x", "1.5"}},
		{"json_schema true", `{"type":"json_schema","json_schema":true}`, []string{"12", `[1, "a"]`}, []string{"x"}},
		{"regex", `{"type":"regex","pattern":"^a/\\d+\\/[b-d]$"}`, []string{"a/12/c"}, []string{"a/12/", "a//c", "a/12/cc"}},
		{"grammar", `{"type":"grammar","grammar":"root ::= \"(\" root \")\" | \"x\""}`, []string{"x", "((x))"}, []string{"((x)", "y"}},
		{"sequence", `{"type":"sequence","elements":[{"type":"const_string","value":"n: "},{"type":"json_schema","json_schema":{"type":"integer"}},{"type":"any_text"}]}`,
			[]string{"n: 7", "n: 7 and more"}, []string{"n: x", "7"}},
		{"or", `{"type":"or","elements":[{"type":"const_string","value":"no"},` + getTag + `]}`, []string{"no", `<f=get>{"x": 1}</f>`}, []string{"", "yes", `no<f=get>{"x": 1}</f>`}},
		{"tag of text", `{"type":"tag","begin":"<think>","content":{"type":"any_text"},"end":"</think>"}`,
			[]string{"<think></think>", "<think>a < b\n</thin></think>"}, []string{"<think>", "<think>a</think>b", "a"}},
		{"tag of regex", `{"type":"tag","begin":"<","content":{"type":"regex","pattern":"[a-z>]*"},"end":">"}`, []string{"<abc>", "<>", "<a>>"}, []string{"<abc", "<ab1>"}},
		{"tag in a tag", `{"type":"tag","begin":"[","content":{"type":"sequence","elements":[` + getTag + `,{"type":"any_text"}]},"end":"]"}`,
			[]string{`[<f=get>{"x": 1}</f>]`, `[<f=get>{"x": 1}</f> more]`}, []string{`[<f=get>{"x": 1}</f> more`, `[]`}},
		{"triggered_tags", `{"type":"triggered_tags",` + both + `}`,
			[]string{"", "a < b", `so <f=get>{"x": 5}</f> then <f=put>"on"</f>`}, []string{`<f=del>`, `<f=get>{"y": 5}</f>`, `<f=put>"on"`}},
		{"triggered_tags, at least one", `{"type":"triggered_tags","at_least_one":true,` + both + `}`,
			[]string{`<f=put>"on"</f>`, `<f=put>"on"</f> and <f=put>"off"</f> end`}, []string{"", `so <f=put>"on"</f>`, `<f=put>"on"</f><f=no>`}},
		{"triggered_tags, one at most", `{"type":"triggered_tags","stop_after_first":true,` + both + `}`,
			[]string{"", "text", `so <f=put>"on"</f>`}, []string{`<f=put>"on"</f>.`, `<f=put>"on"</f><f=put>"on"</f>`}},
		{"triggered_tags, just one", `{"type":"triggered_tags","at_least_one":true,"stop_after_first":true,` + both + `}`,
			[]string{`<f=put>"on"</f>`}, []string{"", `a<f=put>"on"</f>`, `<f=put>"on"</f>.`}},
		{"thoughts and calls", `{"type":"sequence","elements":[{"type":"tag","begin":"<think>","content":{"type":"any_text"},"end":"</think>"},{"type":"triggered_tags",` + both + `}]}`,
			[]string{"<think>hm <f=x></think>", `<think></think>so <f=put>"on"</f>.`}, []string{`so <f=put>"on"</f>`, `<think></think><f=x>`}},
		{"triggered_tags in a tag", `{"type":"tag","begin":"{","content":{"type":"triggered_tags",` + both + `},"end":"}"}`,
			[]string{"{}", "{ text }", `{so <f=get>{"x": 5}</f> then}`}, []string{"{", `{<f=get>{"x": 5}</f>`, "{} more", `{<f=x>}`}},
		{"tags_with_separator", `{"type":"tags_with_separator","separator":", ","tags":[` + getTag + `,` + putTag + `]}`,
			[]string{"", `<f=put>"on"</f>`, `<f=put>"on"</f>, <f=get>{"x": 1}</f>, <f=put>"off"</f>`}, []string{", ", `<f=put>"on"</f>, `, `<f=put>"on"</f><f=put>"on"</f>`}},
		{"tags_with_separator, just one", `{"type":"tags_with_separator","separator":"","at_least_one":true,"stop_after_first":true,"tags":[` + putTag + `]}`,
			[]string{`<f=put>"on"</f>`}, []string{"", `<f=put>"on"</f><f=put>"on"</f>`}},
		{"a list of calls", `{"type":"triggered_tags","triggers":["<calls>"],"stop_after_first":true,"tags":[{"begin":"<calls>[","content":{"type":"tags_with_separator","separator":",","tags":[` + putTag + `]},"end":"]</calls>"}]}`,
			[]string{"text", `well: <calls>[<f=put>"on"</f>,<f=put>"off"</f>]</calls>`, `<calls>[]</calls>`}, []string{`<calls>[<f=put>"on"</f>`, `<calls><f=put>"on"</f></calls>`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.t = t
			tag := `{"type":"structural_tag","format":` + test.format + `}`
			for _, text := range test.good {
				if !r.accepts(core.GrammarStructural, tag, text) {
					t.Errorf("%q is refused", text)
				}
			}
			for _, text := range test.bad {
				if r.accepts(core.GrammarStructural, tag, text) {
					t.Errorf("%q is accepted", text)
				}
			}
		})
	}
}

// TestStructuralFormatErrors: what can't be is named by its path.
func TestStructuralFormatErrors(t *testing.T) {
	r := newRig(t)
	deep := strings.Repeat(`{"type":"tag","content":`, 2*maxFormats) + `{"type":"any_text"}` + strings.Repeat("}", 2*maxFormats)
	for format, want := range map[string]string{
		`{}`:                                `format.type is "", but must be any_text`,
		`[]`:                                "format is not supported as it stands",
		`{"type":"qwen_xml_parameter"}`:     `format.type is "qwen_xml_parameter"`,
		`{"type":"any_text","excludes":[]}`: `format is not supported as it stands: json: unknown field "excludes"`,
		`{"type":"tag","begin":"<"}`:        "format.content is missing",
		`{"type":"tag","begin":1}`:          "format is not supported as it stands",
		`{"type":"regex"}`:                  "format.pattern is missing",
		`{"type":"regex","pattern":"("}`:    "unclosed group",
		`{"type":"json_schema"}`:            "format.json_schema",
		`{"type":"grammar"}`:                "format.grammar is empty",
		`{"type":"sequence"}`:               "format.elements is empty",
		`{"type":"or","elements":[]}`:       "format.elements is empty",
		`{"type":"or","elements":[{}]}`:     "format.elements[0].type",
		`{"type":"triggered_tags"}`:         "format.triggers is empty",
		`{"type":"tags_with_separator"}`:    "format.tags is empty",
		`{"type":"sequence","elements":[{"type":"tag","begin":"a","content":{"type":"any_text"}},{"type":"const_string","value":"b"}]}`: "format.elements[0] is free text",
		`{"type":"sequence","elements":[{"type":"triggered_tags",` + both + `},{"type":"const_string","value":"b"}]}`:                   "format.elements[0] is free text",
		`{"type":"triggered_tags","triggers":["<f",""],"tags":[` + putTag + `]}`:                                                        "format.triggers[1] is empty",
		`{"type":"triggered_tags","triggers":["<f","<f="],"tags":[` + putTag + `]}`:                                                     "format.tags[0].begin",
		`{"type":"triggered_tags","triggers":["<f","["],"tags":[` + putTag + `]}`:                                                       "format.triggers[1]",
		`{"type":"triggered_tags","triggers":["["],"tags":[{"begin":"[","content":{"type":"any_text"}},` + putTag + `]}`:                "format.tags[1].begin",
		`{"type":"triggered_tags","triggers":["["],"tags":[{"type":"or"}]}`:                                                             `format.tags[0].type is "or"`,
		deep: "nests deeper than",
	} {
		_, err := r.c.Matcher(core.Grammar{Kind: core.GrammarStructural, Text: `{"type":"structural_tag","format":` + format + `}`, Field: "here"})
		var invalid *core.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "here" || !strings.Contains(invalid.Message, want) {
			t.Errorf("%s: got %v, want %s", format, err, want)
		}
	}
}

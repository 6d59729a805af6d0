package openai

import (
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
)

// TestParseGrammar: each field that gives one, in the three requests that may.
func TestParseGrammar(t *testing.T) {
	for body, want := range map[string]core.Grammar{
		`"response_format":{"type":"text"}`:        {},
		`"response_format":null`:                   {},
		`"regex":null,"json_schema":null`:          {},
		`"response_format":{"type":"json_object"}`: {Kind: core.GrammarJSONObject, Field: "response_format"},
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"b":1,"a":2}}}`: {
			Kind: core.GrammarJSONSchema, Text: `{"b":1,"a":2}`, Field: "response_format.json_schema.schema"},
		`"response_format":{"type":"structural_tag","triggers":["<"]}`: {
			Kind: core.GrammarStructural, Text: `{"type":"structural_tag","triggers":["<"]}`, Field: "response_format"},
		`"json_schema":"{\"type\":\"null\"}"`:    {Kind: core.GrammarJSONSchema, Text: `{"type":"null"}`, Field: "json_schema"},
		`"json_schema":{"type":"null"}`:          {Kind: core.GrammarJSONSchema, Text: `{"type":"null"}`, Field: "json_schema"},
		`"json_schema":"$$ANY$$"`:                {Kind: core.GrammarJSONObject, Field: "json_schema"},
		`"regex":"a+"`:                           {Kind: core.GrammarRegex, Text: "a+", Field: "regex"},
		`"ebnf":"root ::= \"a\""`:                {Kind: core.GrammarEBNF, Text: `root ::= "a"`, Field: "ebnf"},
		`"structural_tag":"{}"`:                  {Kind: core.GrammarStructural, Text: `{}`, Field: "structural_tag"},
		`"guided_json":{"type":"null"}`:          {Kind: core.GrammarJSONSchema, Text: `{"type":"null"}`, Field: "guided_json"},
		`"guided_regex":"b"`:                     {Kind: core.GrammarRegex, Text: "b", Field: "guided_regex"},
		`"guided_grammar":"start: \"a\""`:        {Kind: core.GrammarEBNF, Text: `start: "a"`, Field: "guided_grammar"},
		`"guided_choice":["yes","no (1+1)","."]`: {Kind: core.GrammarRegex, Text: `(yes|no \(1\+1\)|\.)`, Field: "guided_choice"},
		`"structured_outputs":null`:              {},
		`"structured_outputs":{"json":{"type":"null"},"regex":null,"disable_any_whitespace":true}`: {
			Kind: core.GrammarJSONSchema, Text: `{"type":"null"}`, Field: "structured_outputs.json"},
		`"structured_outputs":{"json":"{\"type\":\"null\"}"}`:       {Kind: core.GrammarJSONSchema, Text: `{"type":"null"}`, Field: "structured_outputs.json"},
		`"structured_outputs":{"regex":"a+","json_object":false}`:   {Kind: core.GrammarRegex, Text: "a+", Field: "structured_outputs.regex"},
		`"structured_outputs":{"choice":["a","b."]}`:                {Kind: core.GrammarRegex, Text: `(a|b\.)`, Field: "structured_outputs.choice"},
		`"structured_outputs":{"grammar":"root ::= \"a\""}`:         {Kind: core.GrammarEBNF, Text: `root ::= "a"`, Field: "structured_outputs.grammar"},
		`"structured_outputs":{"json_object":true}`:                 {Kind: core.GrammarJSONObject, Field: "structured_outputs.json_object"},
		`"structured_outputs":{"structural_tag":{"format":{}}}`:     {Kind: core.GrammarStructural, Text: `{"format":{}}`, Field: "structured_outputs.structural_tag"},
		`"structured_outputs":{"structural_tag":"{\"format\":{}}"}`: {Kind: core.GrammarStructural, Text: `{"format":{}}`, Field: "structured_outputs.structural_tag"},
		`"response_format":{"type":"structural_tag","format":{"type":"any_text"}}`: {
			Kind: core.GrammarStructural, Text: `{"type":"structural_tag","format":{"type":"any_text"}}`, Field: "response_format"},
	} {
		chat, err := ParseChat([]byte(`{`+body+`,`+hi+`}`), DefaultSampling())
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if got := chat.Sampling.Grammar; got != want {
			t.Errorf("chat, %s: got %+v, want %+v", body, got, want)
		}
		completion, err := ParseCompletion([]byte(`{"prompt":"x",`+body+`}`), DefaultSampling())
		if err != nil || completion.Sampling.Grammar != want {
			t.Errorf("completion, %s: got %+v, %v", body, completion, err)
		}
		native, err := ParseGenerate([]byte(`{"text":"x","sampling_params":{`+body+`}}`), DefaultSampling())
		if want.Field != "" {
			want.Field = "sampling_params." + want.Field
		}
		if err != nil || native.Prompts[0].Sampling.Grammar != want {
			t.Errorf("/generate, %s: got %+v, %v", body, native, err)
		}
	}
}

func TestParseGrammarErrors(t *testing.T) {
	for body, want := range map[string]string{
		`"regex":5`:              "regex: must be a string",
		`"regex":"a","ebnf":"b"`: "ebnf: can't be given together with regex",
		`"response_format":{"type":"json_object"},"regex":"a"`:                "regex: can't be given together with response_format",
		`"guided_json":{},"json_schema":{}`:                                   "guided_json: can't be given together with json_schema",
		`"response_format":"json"`:                                            "response_format: must be an object",
		`"response_format":{}`:                                                "response_format.type: must be text, json_object",
		`"response_format":{"type":"xml"}`:                                    "response_format.type: must be text, json_object",
		`"response_format":{"type":"json_schema"}`:                            "response_format.json_schema.schema: is missing",
		`"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`: "response_format.json_schema.schema: is missing",
		`"response_format":{"type":"json_schema","json_schema":[]}`:           "response_format.json_schema: must be an object",
		`"guided_choice":[]`:                                                  "guided_choice: is empty",
		`"guided_choice":["a",1]`:                                             "guided_choice: must be a list of strings",
		`"guided_choice":["a",""]`:                                            "guided_choice: must be a list of strings",
		`"regex":"a","min_tokens":3`:                                          "min_tokens: can't be given together with regex",
		`"guided_choice":{"a":"b"}`:                                           "guided_choice: must be a list",
		`"structured_outputs":[]`:                                             "structured_outputs: must be an object",
		`"structured_outputs":{}`:                                             "structured_outputs: gives no grammar",
		`"structured_outputs":{"json_object":false}`:                          "structured_outputs: gives no grammar",
		`"structured_outputs":{"json_object":"yes"}`:                          "structured_outputs.json_object: must be a boolean",
		`"structured_outputs":{"json":{},"regex":"a"}`:                        "structured_outputs.regex: can't be given together with structured_outputs.json",
		`"structured_outputs":{"json":{}},"regex":"a"`:                        "structured_outputs.json: can't be given together with regex",
		`"structured_outputs":{"regex":5}`:                                    "structured_outputs.regex: must be a string",
		`"structured_outputs":{"choice":[1]}`:                                 "structured_outputs.choice: must be a list of strings",
		`"structured_outputs":{"regex":"a","whitespace_pattern":""}`:          "structured_outputs.whitespace_pattern: is not supported",
		`"structured_outputs":{"jsn":{}}`:                                     "structured_outputs.jsn: is not supported",
		`"ebnf":["root ::= \"a\""]`:                                           "ebnf: must be a string",
	} {
		_, err := ParseChat([]byte(`{`+body+`,`+hi+`}`), DefaultSampling())
		field, message, _ := strings.Cut(want, ":")
		checkError(t, err, field, message)
	}
}

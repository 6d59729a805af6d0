package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type chatFixture struct {
	Templates map[string]struct{ Source, BOS, EOS string } `json:"templates"`
	Cases     []struct {
		Template   string                       `json:"template"`
		Title      string                       `json:"title"`
		Messages   []map[string]json.RawMessage `json:"messages"`
		Tools      []json.RawMessage            `json:"tools"`
		Kwargs     map[string]json.RawMessage   `json:"kwargs"`
		Generation *bool                        `json:"add_generation_prompt"`
		Want       string                       `json:"want"`
		Error      string                       `json:"error"`
	} `json:"cases"`
}

// chatOnly is a tokenizer without a vocabulary that renders one template.
func chatOnly(source string, names map[string]string) *Tokenizer {
	templates, err := compileTemplates(map[string]string{"default": source})
	if err != nil {
		panic(err)
	}
	return &Tokenizer{names: names, templates: templates}
}

// message reads a message as the server does: known fields, and the rest raw.
func message(t *testing.T, fields map[string]json.RawMessage) Message {
	t.Helper()
	m := Message{Extra: map[string]any{}}
	for name, field := range fields {
		var err error
		switch name {
		case "role":
			err = json.Unmarshal(field, &m.Role)
		case "content":
			err = json.Unmarshal(field, &m.Content)
		default:
			m.Extra[name] = field
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestA31_ChatTemplates(t *testing.T) {
	golden := load[chatFixture](t, "chat.json.gz")
	if len(golden.Cases) < 4*12 {
		t.Fatalf("the fixture has %d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		t.Run(c.Template+"/"+c.Title, func(t *testing.T) {
			tmpl := golden.Templates[c.Template]
			tok := chatOnly(tmpl.Source, map[string]string{"bos_token": tmpl.BOS, "eos_token": tmpl.EOS})
			o := TemplateOptions{AddGenerationPrompt: c.Generation == nil || *c.Generation, Kwargs: map[string]any{}}
			for _, tool := range c.Tools {
				o.Tools = append(o.Tools, tool)
			}
			for name, v := range c.Kwargs {
				o.Kwargs[name] = v
			}
			var msgs []Message
			for _, m := range c.Messages {
				msgs = append(msgs, message(t, m))
			}
			got, err := tok.RenderChat(msgs, o)
			if c.Error != "" {
				var raised *TemplateError
				if !errors.As(err, &raised) || raised.Error() != c.Error {
					t.Errorf("RenderChat: %v, want the template's error %q", err, c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.Want, got); d != "" {
				t.Errorf("RenderChat (-want +got):\n%s", d)
			}
		})
	}
}

func TestA31_TemplateSyntax(t *testing.T) {
	// The values on the right are Jinja2's, with the settings of transformers.
	for source, want := range map[string]string{
		"{{ {'a': {'b': {'c': 1}}} }}":                   "{'a': {'b': {'c': 1}}}",
		"{{ {'a': {'b': {'c': '}}'}}}['a']['b']['c'] }}": "}}",
		"{{ 'x' if false }}|{{ 1.0 }}|{{ none }}":        "|1.0|None",
		"{% raw %}{{ x | trim }}{% endraw %}":            "{{ x | trim }}",
		"{# {{ #}a\r\nb\n":                               "a\nb",
		"  {% if true %}\n  y\n  {% endif %}\nz\n\n":     "  y\nz\n",
		"{{ '\u3000\x1f a \n'.strip() }}|":               "a|",
		"{{ '\u3000\x1f a \n' | trim | length }}":        "1",
		"{{ 'xxaxx'.strip('x') }}{{ 'xa'.lstrip('x') }}": "aa",
		"{%- set a = [1, 2] -%} {{ a | join(',') }}":     "1,2",
		"{{ (1, 'two') | tojson if 1 else 2 }}":          `[1, "two"]`,
		"{{ 'a' ~ 1 ~ 'b' }}{{ 'q' + 'r' | upper }}":     "a1bqR",
		`{{ ["it's", 'say "x"', "a\nb"] }}`:              `["it's", 'say "x"', 'a\nb']`,
	} {
		got, err := chatOnly(source, nil).RenderChat(nil, TemplateOptions{})
		if err != nil || got != want {
			t.Errorf("%q gives %q, %v, want %q", source, got, err, want)
		}
	}
}

func TestA34_KwargsDoNotReplace(t *testing.T) {
	tok := chatOnly(`{{ messages[0].content }}{{ tools }}{{ add_generation_prompt }}{{ range(2) }}{{ bos_token }}{{ x }}`,
		map[string]string{"bos_token": "<s>"})
	got, err := tok.RenderChat([]Message{{Role: "user", Content: "hi"}}, TemplateOptions{Kwargs: map[string]any{
		"messages": []any{}, "tools": "t", "add_generation_prompt": true, "range": 1, "x": json.RawMessage(`{"b":1,"a":2}`),
	}})
	if want := "hiNoneFalse[0, 1]<s>{'b': 1, 'a': 2}"; err != nil || got != want {
		t.Errorf("RenderChat() = %q, %v, want %q", got, err, want)
	}
}

func TestEncodeChat(t *testing.T) {
	v := smollm2Vocab(t, "smollm")
	v.AddBOS = true
	tok := fromVocabT(t, v)
	ids, err := tok.EncodeChat([]Message{{Role: "system", Content: "S"}, {Role: "user", Content: "hi"}}, TemplateOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	text, err := tok.Decode(ids, false)
	if want := "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"; err != nil || text != want {
		t.Errorf("the ids decode to %q, %v, want %q", text, err, want)
	}
	if skipped, err := tok.Decode(ids, true); err != nil || skipped != "system\nS\nuser\nhi\nassistant\n" {
		t.Errorf("without special tokens: %q, %v", skipped, err)
	}
}

func TestA31_TemplateLimits(t *testing.T) {
	user := []Message{{Role: "user", Content: "hi"}}
	deep := strings.Repeat(`[`, maxDepth+2) + strings.Repeat(`]`, maxDepth+2)
	for name, c := range map[string]struct {
		source string
		msgs   []Message
		want   string
	}{
		"recursion":      {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", user, "too deeply"},
		"two macros":     {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", user, "too deeply"},
		"range":          {"{{ range(100001) }}", user, "range: more than"},
		"brackets":       {"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}", user, "brackets"},
		"blocks":         {strings.Repeat("{% if 1 %}", 300), user, "blocks"},
		"source":         {strings.Repeat("a", maxTemplateBytes+1), user, "more than the 1048576 allowed"},
		"output":         {"{% for i in range(20) %}{{ messages[0].content }}{% endfor %}", []Message{{Content: strings.Repeat("a", 1<<20)}}, "the text has"},
		"input":          {"x", []Message{{Content: strings.Repeat("a", maxOutputBytes+1)}}, "the input is larger"},
		"deep input":     {"x", []Message{{Extra: map[string]any{"x": json.RawMessage(deep)}}}, "nests deeper"},
		"bad JSON":       {"x", []Message{{Extra: map[string]any{"x": json.RawMessage(`{"a":`)}}}, "invalid JSON"},
		"two values":     {"x", []Message{{Extra: map[string]any{"x": json.RawMessage(`1 2`)}}}, "more behind the value"},
		"function":       {"x", []Message{{Extra: map[string]any{"x": func() {}}}}, "no JSON value"},
		"unclosed":       {"{{ x", user, "has no end"},
		"unknown filter": {"{{ x | nosuch }}", user, `unknown filter "nosuch"`},
	} {
		t.Run(name, func(t *testing.T) {
			templates, err := compileTemplates(map[string]string{"default": c.source})
			var got string
			if err == nil {
				got, err = (&Tokenizer{templates: templates}).RenderChat(c.msgs, TemplateOptions{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("RenderChat() = %.40q, %v, want an error with %q", got, err, c.want)
			}
		})
	}
	// Recursion that follows the input ends, so it works.
	source := "{% macro f(x) -%}\n [{% for y in x %}{{ f(y) }}{% endfor %}]{%- endmacro %}\n{{ f(t) }}"
	nested := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	got, err := chatOnly(source, nil).RenderChat(user, TemplateOptions{Kwargs: map[string]any{"t": json.RawMessage(nested)}})
	if err != nil || got != nested {
		t.Errorf("RenderChat() = %q, %v, want %q", got, err, nested)
	}
}

func TestToJSON(t *testing.T) {
	// The values on the right are what Python's json.dumps prints.
	const value = `{"b":[1,2.0,1e6,1e16,1e-05,-0.5,null,true],"a":{},"s":"é\u2028<&>'\"\\\n\u007f😀","e":[]}`
	for filter, want := range map[string]string{
		`tojson`:                           "{\"b\": [1, 2.0, 1000000.0, 1e+16, 1e-05, -0.5, null, true], \"a\": {}, \"s\": \"é\u2028<&>'\\\"\\\\\\n\x7f😀\", \"e\": []}",
		`tojson(ensure_ascii=true)`:        `{"b": [1, 2.0, 1000000.0, 1e+16, 1e-05, -0.5, null, true], "a": {}, "s": "\u00e9\u2028<&>'\"\\\n\u007f\ud83d\ude00", "e": []}`,
		`tojson(separators=(',', ':'))`:    "{\"b\":[1,2.0,1000000.0,1e+16,1e-05,-0.5,null,true],\"a\":{},\"s\":\"é\u2028<&>'\\\"\\\\\\n\x7f😀\",\"e\":[]}",
		`tojson(indent=1, sort_keys=True)`: "{\n \"a\": {},\n \"b\": [\n  1,\n  2.0,\n  1000000.0,\n  1e+16,\n  1e-05,\n  -0.5,\n  null,\n  true\n ],\n \"e\": [],\n \"s\": \"é\u2028<&>'\\\"\\\\\\n\x7f😀\"\n}",
	} {
		tok := chatOnly("{{ v | "+filter+" }}", nil)
		got, err := tok.RenderChat(nil, TemplateOptions{Kwargs: map[string]any{"v": json.RawMessage(value)}})
		if err != nil || got != want {
			t.Errorf("%s: %v\n got %q\nwant %q", filter, err, got, want)
		}
	}
}

func TestA32_Strftime(t *testing.T) {
	// Python 3.11: datetime(...).strftime(code) in the C locale.
	morning := time.Date(2026, 3, 1, 9, 5, 7, 123456789, time.UTC)
	eve := time.Date(2024, 12, 30, 23, 59, 0, 0, time.UTC)
	for _, c := range []struct {
		t            time.Time
		format, want string
	}{
		{morning, "%d %b %Y %H:%M:%S %A %j %%", "01 Mar 2026 09:05:07 Sunday 060 %"},
		{morning, "%y-%m-%d %I:%M %p %f %a %B", "26-03-01 09:05 AM 123456 Sun March"},
		{morning, "%-d/%-m/%y %-I", "1/3/26 9"},
		{morning, "%c|%x|%X|%D|%F|%T|%R", "Sun Mar  1 09:05:07 2026|03/01/26|09:05:07|03/01/26|2026-03-01|09:05:07|09:05"},
		{morning, "%w %u %U %W %V %G %C %e", "0 7 09 08 09 2026 20  1"},
		{eve, "%w %u %U %W %V %G %p %l%z%Z", "1 1 52 53 01 2025 PM 11"},
		{eve, "100% %Q %", "100% %Q %"},
	} {
		if got := strftime(c.t, c.format); got != c.want {
			t.Errorf("strftime(%q) = %q, want %q", c.format, got, c.want)
		}
	}
	tok := chatOnly(`{% if strftime_now is defined %}{{ strftime_now("%Y") }}{% endif %}`, nil)
	before := time.Now().Format("2006")
	got, err := tok.RenderChat(nil, TemplateOptions{})
	if err != nil || got != before && got != time.Now().Format("2006") {
		t.Errorf("strftime_now: %q, %v", got, err)
	}
}

// Rendering the same template at once from many goroutines shares only the
// compiled form.
func TestRenderConcurrently(t *testing.T) {
	tok := chatOnly("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", nil)
	results := make(chan string)
	for n := range 8 {
		go func() {
			got, err := tok.RenderChat(make([]Message, n), TemplateOptions{})
			if want := fmt.Sprint(n); err != nil || got != want {
				results <- fmt.Sprintf("%d messages: %q, %v", n, got, err)
				return
			}
			results <- ""
		}()
	}
	for range 8 {
		if failed := <-results; failed != "" {
			t.Error(failed)
		}
	}
}

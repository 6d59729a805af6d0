package grammar

import (
	"errors"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
)

// TestEBNF: what grammars in both syntaxes take, and what they don't.
func TestEBNF(t *testing.T) {
	r := newRig(t)
	const arithmetic = `
# sums and products
root  ::= expr
expr  ::= term (("+" | "-") term)*   # left to right
term  ::= factor (("*" | "/") factor)*
factor ::= number | "(" expr ")"
number ::= "-"? [0-9]+ ("." [0-9]+)?
`
	const jsonish = `root ::= value
value ::= object | array | string | "true" | "false" | "null"
object ::= "{" ws ( string ":" ws value
  ("," ws string ":" ws value)* )? "}"
array ::=
  "[" ws ( value ("," ws value)* )? "]"
string ::= "\"" [^"\\\x01-\x1f]* "\""
ws ::= [ \t\n]*
`
	for _, c := range []struct {
		grammar  string
		yes, not []string
	}{
		{`root ::= "yes" | "no"`, []string{"yes", "no"}, []string{"", "ye", "yesno"}},
		{`root ::= [a-c]{2,3} "!"?`, []string{"ab", "abc!", "cc!"}, []string{"a", "abca", "ad", "ab!!"}},
		{`root ::= "a"{2} "b"{1,} c
c ::= .`, []string{"aabx", "aabbb\n", "aabbü"}, []string{"abx", "aab"}},
		{"root ::= \"tab\\t\" \"\\x41\\u00e9\\U0001F642\" \"\\\"\\\\\"", []string{"tab\tAé🙂\"\\"}, []string{"tabA"}},
		{`root ::= [^0-9\]\-] [-+] [\[\]]`, []string{"x-[", "é+]"}, []string{"1-[", "]-[", "--[", "x*["}},
		{arithmetic, []string{"1", "1+2*3", "(1-2)/-3.5", "((7))"}, []string{"", "1+", "(1", "1..2", "a"}},
		{jsonish, []string{`{}`, `[ true,false]`, `{"a": [null, "b"],"c":{}}`, `""`}, []string{`{`, `[true,]`, `{"a"}`, `"`}},
		{`root ::= a b
a ::= "x" a | ""
b ::= "y"
 | "z"`, []string{"y", "xxz"}, []string{"x", "xyz"}},
		{"start: \"a\" B+\nB: /[0-9]/", []string{"a1", "a123"}, []string{"a", "1"}},
	} {
		for _, text := range c.yes {
			if !r.accepts(core.GrammarEBNF, c.grammar, text) {
				t.Errorf("%s\ndoes not take %q", c.grammar, text)
			}
		}
		for _, text := range c.not {
			if r.accepts(core.GrammarEBNF, c.grammar, text) {
				t.Errorf("%s\ntakes %q", c.grammar, text)
			}
		}
	}
}

// TestEBNFErrors: with the line and the column.
func TestEBNFErrors(t *testing.T) {
	r := newRig(t)
	for text, want := range map[string]string{
		"root ::= \"a\"\nb := \"c\"":     "line 2, column 3: expected a rule",
		"a ::= \"b\"":                    "no rule named root",
		"root ::= a\n":                   "the rule root uses a, which is not there",
		"root ::= \"a":                   "line 1, column 12: a literal or a character class has no end",
		"root ::= [a-":                   "no end",
		"root ::= []":                    "is empty",
		"root ::= [z-a]":                 "the range 'z'-'a' is empty",
		"root ::= (\"a\"":                "expected )",
		"root ::= \"a\"\nroot ::= \"b\"": "the rule root is there twice",
		"root ::= \"a\"{3,2}":            "expected a repetition",
		"root ::= \"a\"{x}":              "expected a repetition",
		"root ::= \"a\"{1,99999}":        "expected a repetition",
		`root ::= "\q"`:                  `unknown escape \q`,
		`root ::= "\u12"`:                "hexadecimal",
		`root ::= "\x00"`:                "NUL",
		"root ::= %":                     "unexpected '%'",
		"root ::= " + strings.Repeat("(", 99) + strings.Repeat("(", 9): "nest deeper",
	} {
		_, err := r.c.Matcher(core.Grammar{Kind: core.GrammarEBNF, Text: text})
		var invalid *core.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "ebnf" || !strings.Contains(invalid.Message, want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// FuzzEBNF: any text is refused or gives Lark.
func FuzzEBNF(f *testing.F) {
	f.Add("root ::= \"a\" | [b-z]{2,3} (x)*\nx ::= . # end")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = ebnfToLark(text) })
}

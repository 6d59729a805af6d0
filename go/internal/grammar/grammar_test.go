package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// tiny is a vocabulary of all bytes and some pairs of letters.
var tiny = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	return tokenizer.Open("../model/testdata/tiny/llama-tied")
})

type rig struct {
	t   *testing.T
	tok *tokenizer.Tokenizer
	c   *Compiler
	eos int32
}

func newRig(t *testing.T) *rig {
	t.Helper()
	tok, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	eos, _ := tok.EOS()
	c, err := New(tok, tok.VocabSize(), []int32{eos})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, tok, c, eos}
}

func (r *rig) matcher(kind core.GrammarKind, text string) core.Matcher {
	r.t.Helper()
	m, err := r.c.Matcher(core.Grammar{Kind: kind, Text: text})
	if err != nil {
		r.t.Fatalf("%s %s: %v", kind, text, err)
	}
	return m
}

// allowed returns the tokens that may follow.
func (r *rig) allowed(m core.Matcher, output []int32) []int32 {
	r.t.Helper()
	mask := make([]int32, (r.tok.VocabSize()+31)/32)
	if err := m.Mask(mask, output); err != nil {
		r.t.Fatalf("after %q: %v", r.text(output), err)
	}
	var ids []int32
	for id := range int32(r.tok.VocabSize()) {
		if mask[id/32]>>(id%32)&1 != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r *rig) encode(text string) []int32 {
	r.t.Helper()
	ids, err := r.tok.Encode(text, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

func (r *rig) text(ids []int32) string {
	text, err := r.tok.Decode(ids, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// walk draws allowed tokens, those that close something more often, and returns
// the text and whether it came to an end.
func (r *rig) walk(m core.Matcher, rng *rand.Rand, limit int) (string, bool) {
	r.t.Helper()
	var output []int32
	for len(output) < limit {
		ids := r.allowed(m, output)
		closing := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool {
			return id != r.eos && !slices.Contains([]string{`"`, "}", "]", ")"}, string(r.tok.TokenBytes(id)))
		})
		if len(closing) > 0 && rng.IntN(4) == 0 {
			ids = closing
		}
		id := ids[rng.IntN(len(ids))]
		if id == r.eos {
			return r.text(output), true
		}
		output = append(output, id)
	}
	return r.text(output), false
}

// accepts reports whether the grammar takes a text as a whole.
func (r *rig) accepts(kind core.GrammarKind, grammar, text string) bool {
	r.t.Helper()
	ids := r.encode(text)
	m := r.matcher(kind, grammar)
	defer m.Close()
	mask := make([]int32, (r.tok.VocabSize()+31)/32)
	return m.Mask(mask, ids) == nil && mask[r.eos/32]>>(r.eos%32)&1 != 0
}

type schema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

func schemas(t *testing.T) []schema {
	t.Helper()
	data, err := os.ReadFile("testdata/schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []schema
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestSchemas: what a random walk writes is JSON with the spaces of json.dumps.
// That it validates, python/tests/test_grammar.py proves.
func TestSchemas(t *testing.T) {
	r := newRig(t)
	list := schemas(t)
	if len(list) != 200 {
		t.Errorf("%d schemas, want 200", len(list))
	}
	ended := 0
	for i, s := range list {
		m := r.matcher(core.GrammarJSONSchema, string(s.Schema))
		text, end := r.walk(m, rand.New(rand.NewPCG(1, uint64(i))), 400)
		m.Close()
		if !end {
			continue
		}
		if ended++; !json.Valid([]byte(text)) || text != strings.TrimSpace(text) {
			t.Errorf("%s: %s", s.Name, text)
		}
	}
	if ended < 180 {
		t.Errorf("%d walks came to an end, want most of 200", ended)
	}
}

func TestRegexes(t *testing.T) {
	r := newRig(t)
	for _, regex := range []string{
		`[0-9]{3}-[0-9]{4}`, `^(yes|no|maybe)$`, `a+b*c?`, `\d+(\.\d+)?`, `[^\n]{1,20}`, `(ab|cd){2,3}`, `\w{2,5}@\w{2,5}\.(com|org)`,
		`/[a-z/]{0,10}`, `"[a-z]*"`, `\$[0-9]+`, `x{0}y`, `(?i)hello`, `[\[\]]+`, `.{4}`, `\\d`, `a\$`, `[^\W\d]{1,4}`, `[\d ]{2}\D`,
	} {
		whole := regexp.MustCompile(`^(?:` + regex + `)$`)
		ended := 0
		for seed := range uint64(20) {
			m := r.matcher(core.GrammarRegex, regex)
			text, end := r.walk(m, rand.New(rand.NewPCG(2, seed)), 60)
			if end && !whole.MatchString(text) {
				t.Errorf("%s gave %q", regex, text)
			}
			if end {
				ended++
			}
		}
		if ended == 0 {
			t.Errorf("%s: no walk came to an end", regex)
		}
	}
}

// TestForced: where a grammar leaves one text, its tokens are the tokenizer's.
func TestForced(t *testing.T) {
	r := newRig(t)
	const text = `{"the name of the author": "`
	want := r.encode(text)
	m := r.matcher(core.GrammarJSONSchema, `{"type":"object","properties":{"the name of the author":{"type":"string"}},"required":["the name of the author"]}`)
	var got []int32
	for len(got) < len(want)-2 { // what comes next may change how the end is written
		ids := r.allowed(m, got)
		if len(ids) != 1 {
			t.Fatalf("after %q: %d tokens", r.text(got), len(ids))
		}
		got = append(got, ids[0])
	}
	if !slices.Equal(got, want[:len(got)]) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestStructuralTag(t *testing.T) {
	r := newRig(t)
	const tag = `{"type":"structural_tag","triggers":["<function="],"structures":[
		{"begin":"<function=get>","schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false},"end":"</function>"},
		{"begin":"<function=put>","schema":{"enum":["on","off"]},"end":"</function>"}]}`
	for text, want := range map[string]bool{
		"":                  true,
		"just text, a < b.": true,
		`first <function=get>{"x": 5}</function> then`:                            true,
		`<function=put>"on"</function><function=get>{"x": -12}</function>` + "\n": true,
		`<function=del>{}</function>`:                                             false,
		`<function=get>{"y": 5}</function>`:                                       false,
		`<function=put>"on"`:                                                      false,
		`<function=`:                                                              false,
	} {
		if got := r.accepts(core.GrammarStructural, tag, text); got != want {
			t.Errorf("%q: accepted %v, want %v", text, got, want)
		}
	}
}

// TestInvalid: what is wrong is told, in the field's name.
func TestInvalid(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		kind core.GrammarKind
		text string
		want string
	}{
		{core.GrammarJSONSchema, `{"type":`, "at byte 8"},
		{core.GrammarJSONSchema, `[]`, "must be a JSON schema"},
		{core.GrammarJSONSchema, `{"type":"strin"}`, "strin"},
		{core.GrammarJSONSchema, `{"properties":{"a":{"properties":{"b":{"not":{}}}}}}`, `at #/properties/a/properties/b: Unimplemented keys: ["not"]`},
		{core.GrammarJSONSchema, `{"$defs":{"x":{"type":"array","items":{"anyOf":[{"type":"null"},{"pattern":"("}]}}},"$ref":"#/$defs/x"}`, "at #/$defs/x/items/anyOf/1: regex parse error"},
		{core.GrammarJSONSchema, `{"$ref":"#/$defs/missing"}`, "missing"},
		{core.GrammarJSONSchema, `{"$ref":"https://example.com/other.json"}`, "example.com"},
		{core.GrammarJSONSchema, `{"type":"string","pattern":"(ab"}`, "(ab"},
		{core.GrammarJSONSchema, `{"type":"integer","minimum":5,"maximum":4}`, "minimum"},
		{core.GrammarJSONSchema, `{"$ref":"#"}`, "no output fits"},
		{core.GrammarJSONSchema, `false`, "must be a JSON schema"},
		{core.GrammarRegex, `(ab`, "unclosed group"},
		{core.GrammarRegex, `(?=look)ahead`, "look-around"},
		{core.GrammarRegex, `(a)\1`, "backreference"},
		{core.GrammarRegex, "a\x00b", "NUL"},
		{core.GrammarEBNF, ``, "is empty"},
		{core.GrammarEBNF, `start: "a" missing`, "missing"},
		{core.GrammarStructural, `{`, "not valid"},
		{core.GrammarStructural, `{"format":{},"triggers":["<"]}`, "has a format and structures"},
		{core.GrammarStructural, `{"triggers":["<"]}`, "structures"},
		{core.GrammarStructural, `{"triggers":["<"],"structures":[{"begin":"[x","schema":{},"end":""}]}`, "structures[0].begin"},
		{core.GrammarStructural, `{"triggers":["<"],"structures":[{"begin":"<x","schema":3,"end":""}]}`, "structures[0].schema"},
	} {
		_, err := r.c.Matcher(core.Grammar{Kind: c.kind, Text: c.text, Field: "here"})
		var invalid *core.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "here" || !strings.Contains(invalid.Message, c.want) {
			t.Errorf("%s %s: got %v, want it to say %s", c.kind, c.text, err, c.want)
		} else if strings.Contains(invalid.Message, ".rs:") || strings.Contains(invalid.Message, "panic") {
			t.Errorf("%s %s: %v", c.kind, c.text, err)
		}
	}
}

// bombs are small texts for large grammars: they are refused or work, in bounded
// time and memory, and the process lives on.
func bombs() map[string]core.Grammar {
	deep := strings.Repeat(`{"type":"array","items":`, 120) + `{}` + strings.Repeat(`}`, 120)
	deeper := strings.Repeat(`{"items":`, 20000) + `{}` + strings.Repeat(`}`, 20000)
	// Chains as long as a text can hold.
	var chain, ebnf, lark, wide strings.Builder
	chain.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := 0; chain.Len() < maxTextBytes-100; i++ {
		fmt.Fprintf(&chain, `"%x":{"$ref":"#/$defs/%x"},`, i, i+1)
	}
	chain.WriteString(`"":{}}}`)
	ebnf.WriteString("root ::= r0 | \"(\" root \")\"\n")
	for i := range maxRules - 2 {
		fmt.Fprintf(&ebnf, "r%d ::= \"a\" r%d\n", i, i+1)
	}
	fmt.Fprintf(&ebnf, "r%d ::= \"z\"\n", maxRules-2)
	lark.WriteString("start: r0\n")
	links := 0
	for ; lark.Len() < maxTextBytes-100; links++ {
		fmt.Fprintf(&lark, "r%x:r%x\n", links, links+1)
	}
	fmt.Fprintf(&lark, "r%x: \"z\"\n", links)
	wide.WriteString(`{"type":"object","properties":{`)
	for i := range 1500 {
		fmt.Fprintf(&wide, `"p%d":{"type":"string","pattern":"^(a|b){1,20}$"},`, i)
	}
	wide.WriteString(`"last":{}}}`)
	var triggers, tags, texts []string
	for i := range 2000 {
		triggers = append(triggers, fmt.Sprintf(`"<%x>"`, i))
		tags = append(tags, fmt.Sprintf(`{"begin":"<%x>","content":{"type":"regex","pattern":"(a|b){1,50}"},"end":">"}`, i))
		texts = append(texts, `{"type":"tag","begin":"<","content":{"type":"any_text"},"end":">"}`)
	}
	structural := func(format string) core.Grammar {
		return core.Grammar{Kind: core.GrammarStructural, Text: `{"format":` + format + `}`}
	}
	return map[string]core.Grammar{
		"nested schema":          {Kind: core.GrammarJSONSchema, Text: deep},
		"deeply nested schema":   {Kind: core.GrammarJSONSchema, Text: deeper},
		"chain of refs":          {Kind: core.GrammarJSONSchema, Text: chain.String()},
		"ref to itself":          {Kind: core.GrammarJSONSchema, Text: `{"$ref":"#"}`},
		"wide object":            {Kind: core.GrammarJSONSchema, Text: wide.String()},
		"huge bounds":            {Kind: core.GrammarJSONSchema, Text: `{"type":"array","minItems":1000000000,"items":{"type":"string","minLength":1000000000}}`},
		"huge integers":          {Kind: core.GrammarJSONSchema, Text: `{"type":"integer","minimum":-1e300,"maximum":1e300}`},
		"repetitions":            {Kind: core.GrammarRegex, Text: `(((a{1,1000}){1,1000}){1,1000}){1,1000}`},
		"regex of alternatives":  {Kind: core.GrammarRegex, Text: `(a|b)*a(a|b){60}`},
		"nested groups":          {Kind: core.GrammarRegex, Text: strings.Repeat("(", 20000) + strings.Repeat(")", 20000)},
		"chain of rules":         {Kind: core.GrammarEBNF, Text: ebnf.String()},
		"chain of rules in lark": {Kind: core.GrammarEBNF, Text: lark.String()},
		"chain of tokens":        {Kind: core.GrammarEBNF, Text: "start: R0\n" + strings.ToUpper(strings.TrimPrefix(lark.String(), "start: r0\n"))},
		"repeated repetitions":   {Kind: core.GrammarEBNF, Text: `root ::= ((("a"{1,9999}){1,9999}){1,9999}){1,9999}`},
		"left recursion":         {Kind: core.GrammarEBNF, Text: `root ::= root root | root | ""`},
		"a rule without end":     {Kind: core.GrammarEBNF, Text: `root ::= "a" root`},
		"parentheses":            {Kind: core.GrammarEBNF, Text: "root ::= " + strings.Repeat("(", 20000)},
		"parentheses in lark":    {Kind: core.GrammarEBNF, Text: "start: " + strings.Repeat("(", 20000)},
		"repetitions in lark":    {Kind: core.GrammarEBNF, Text: `start: "a"~1..1000000000`},
		"text longer than any":   {Kind: core.GrammarRegex, Text: strings.Repeat("a", maxTextBytes+1)},
		"a long text":            {Kind: core.GrammarRegex, Text: strings.Repeat("ab?", maxTextBytes/3)},
		"triggers":               structural(`{"type":"triggered_tags","triggers":[` + strings.Join(triggers, ",") + `],"tags":[` + strings.Join(tags, ",") + `]}`),
		"a sequence of texts":    structural(`{"type":"sequence","elements":[` + strings.Join(texts, ",") + `]}`),
		"texts to choose from":   structural(`{"type":"or","elements":[` + strings.Join(texts, ",") + `]}`),
		"nested tags":            structural(strings.Repeat(`{"type":"tag","content":`, 9000) + `{"type":"any_text"}` + strings.Repeat("}", 9000)),
		"a schema that is large": {Kind: core.GrammarJSONSchema, Text: `{"enum":["` + strings.Repeat(`x","`, 100000) + `"]}`},
	}
}

func TestBombs(t *testing.T) {
	r := newRig(t)
	for name, g := range bombs() {
		t.Run(name, func(t *testing.T) {
			m, err := r.c.Matcher(g)
			if err != nil {
				var invalid *core.InvalidError
				if !errors.As(err, &invalid) || len(err.Error()) > 2000 {
					t.Errorf("%.300s", err.Error())
				}
				return
			}
			mask := make([]int32, (r.tok.VocabSize()+31)/32)
			if err := m.Mask(mask, nil); err != nil {
				t.Log(err)
			}
			m.Close()
		})
	}
}

func TestMatcherCloses(t *testing.T) {
	r := newRig(t)
	m := r.matcher(core.GrammarRegex, "ab")
	m.Close()
	m.Close()
	if err := m.Mask(make([]int32, 10), nil); err == nil {
		t.Error("a closed matcher gives a mask")
	}
}

// TestForbiddenToken: an output that breaks the grammar is an error, for good.
func TestForbiddenToken(t *testing.T) {
	r := newRig(t)
	m := r.matcher(core.GrammarRegex, "[0-9]+")
	mask := make([]int32, (r.tok.VocabSize()+31)/32)
	for range 2 {
		if err := m.Mask(mask, []int32{r.eos - 20}); err == nil {
			t.Error("a token that the mask forbids is accepted")
		}
	}
}

func TestCache(t *testing.T) {
	r := newRig(t)
	size := func() int {
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		return r.c.cache.order.Len()
	}
	for range 3 {
		r.matcher(core.GrammarRegex, "same")
	}
	if size() != 1 {
		t.Errorf("one grammar is there %d times", size())
	}
	for i := range maxCached + 20 {
		r.matcher(core.GrammarRegex, strconv.Itoa(i))
	}
	if n := size(); n != maxCached || len(r.c.cache.byText) != n {
		t.Errorf("%d grammars are kept, want %d", n, maxCached)
	}
	if _, err := r.c.Matcher(core.Grammar{Kind: core.GrammarRegex, Text: "("}); err == nil || size() != maxCached {
		t.Error("an invalid grammar is kept")
	}
}

// TestConcurrent: matchers of one grammar don't know of each other.
func TestConcurrent(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	texts := make([]string, 8)
	for i := range texts {
		wg.Go(func() {
			m := r.matcher(core.GrammarJSONSchema, `{"type":"array","items":{"type":"integer","maximum":9,"minimum":0},"minItems":3,"maxItems":8}`)
			texts[i], _ = r.walk(m, rand.New(rand.NewPCG(7, 7)), 100)
			m.Close()
		})
	}
	wg.Wait()
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("equal walks give %q and %q", text, texts[0])
		}
	}
}

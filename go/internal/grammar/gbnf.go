package grammar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// gbnf is a parsed grammar.
type gbnf struct {
	byName map[string]node
	order  []string
}

// node is a part of a rule.
type node struct {
	kind     nodeKind
	text     string // of a literal; a character class as a regular expression; a referenced rule's name
	parts    []node
	min, max int // of a repetition; max < 0: any number
}

type nodeKind uint8

const (
	literal nodeKind = iota
	class
	reference
	sequence
	alternatives
	repetition
	written // Lark already
)

func (n node) walk(f func(node)) {
	f(n)
	for _, part := range n.parts {
		part.walk(f)
	}
}

func (n node) with(parts []node) node {
	n.parts = parts
	return n
}

// write writes a node in Lark's syntax; part writes what it consists of.
func (n node) write(name func(string) string, part func(node) string) string {
	list := func(separator string) string {
		texts := make([]string, len(n.parts))
		for i, p := range n.parts {
			texts[i] = part(p)
		}
		return "(" + strings.Join(texts, separator) + ")"
	}
	switch n.kind {
	case literal:
		return quoteAll(n.text)
	case class:
		return "/" + n.text + "/"
	case reference:
		return name(n.text)
	case sequence:
		if len(n.parts) == 0 {
			return `""`
		}
		return list(" ")
	case alternatives:
		return list(" | ")
	case repetition:
		return repeat(list(" "), n.min, n.max)
	}
	return n.text
}

func repeat(what string, least, most int) string {
	switch {
	case least == 0 && most == 1:
		return what + "?"
	case least == 0 && most < 0:
		return what + "*"
	case least == 1 && most < 0:
		return what + "+"
	case most < 0:
		return fmt.Sprintf("(%s~%d %s*)", what, least, what)
	}
	return fmt.Sprintf("%s~%d..%d", what, least, most)
}

const (
	maxRules   = 4096
	maxNesting = 100
	maxRepeat  = 10000
)

// parser reads GBNF.
type parser struct {
	text  string
	at    int
	depth int
}

// parseGBNF reads rules of the form name ::= alternatives. Rules end with their
// line, unless a parenthesis is open or the next line goes on with |.
func parseGBNF(text string) (*gbnf, error) {
	p := &parser{text: text}
	g := &gbnf{byName: map[string]node{}}
	for p.space(true); p.at < len(text); p.space(true) {
		name := p.name()
		if p.space(true); name == "" || !p.take("::=") {
			return nil, p.fail("expected a rule, name ::= …")
		}
		if _, ok := g.byName[name]; ok {
			return nil, p.fail("the rule %s is there twice", name)
		}
		p.space(true)
		body, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		g.byName[name] = body
		if g.order = append(g.order, name); len(g.order) > maxRules {
			return nil, p.fail("there are more than %d rules", maxRules)
		}
	}
	return g, g.check()
}

// check reports a rule that is used and not there.
func (g *gbnf) check() error {
	if _, ok := g.byName["root"]; !ok {
		return errors.New("has no rule named root, which the output is to follow")
	}
	var err error
	for _, name := range g.order {
		g.byName[name].walk(func(n node) {
			if _, ok := g.byName[n.text]; n.kind == reference && !ok && err == nil {
				err = fmt.Errorf("the rule %s uses %s, which is not there", name, n.text)
			}
		})
	}
	return err
}

func (p *parser) fail(format string, args ...any) error {
	before := p.text[:p.at]
	line := 1 + strings.Count(before, "\n")
	return fmt.Errorf("line %d, column %d: %s", line, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])+1, fmt.Sprintf(format, args...))
}

// space skips blanks and comments, and line ends if lines is set.
func (p *parser) space(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '#':
			if n := strings.IndexByte(p.text[p.at:], '\n'); n >= 0 {
				p.at += n
			} else {
				p.at = len(p.text)
			}
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
			p.at++
		default:
			return
		}
	}
}

func (p *parser) take(token string) bool {
	if strings.HasPrefix(p.text[p.at:], token) {
		p.at += len(token)
		return true
	}
	return false
}

func (p *parser) name() string {
	begin := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
		p.at++
	}
	return p.text[begin:p.at]
}

func (p *parser) alternatives() (node, error) {
	n := node{kind: alternatives}
	if p.depth++; p.depth > maxNesting {
		return n, p.fail("parentheses nest deeper than %d levels", maxNesting)
	}
	defer func() { p.depth-- }()
	for {
		part, err := p.sequence()
		if err != nil {
			return n, err
		}
		n.parts = append(n.parts, part)
		if mark := p.at; !p.bar() {
			p.at = mark
			break
		}
	}
	if len(n.parts) == 1 {
		return n.parts[0], nil
	}
	return n, nil
}

// bar takes a | that may begin the next line.
func (p *parser) bar() bool {
	p.space(true)
	if !p.take("|") {
		return false
	}
	p.space(true)
	return true
}

func (p *parser) sequence() (node, error) {
	n := node{kind: sequence}
	for {
		p.space(p.depth > 1)
		part, ok, err := p.item()
		if err != nil || !ok {
			return n, err
		}
		if part, err = p.repeated(part); err != nil {
			return n, err
		}
		n.parts = append(n.parts, part)
	}
}

// item reads what can be repeated; ok is false at the end of a sequence.
func (p *parser) item() (n node, ok bool, err error) {
	if p.at == len(p.text) {
		return n, false, nil
	}
	switch c := p.text[p.at]; c {
	case '\n', '\r', '|', ')':
		return n, false, nil
	case '"':
		n, err = p.literal()
		return n, true, err
	case '[':
		n, err = p.class()
		return n, true, err
	case '.':
		p.at++
		return node{kind: class, text: `[\x{0}-\x{10FFFF}]`}, true, nil
	case '(':
		p.at++
		n, err = p.alternatives()
		p.space(true)
		if err == nil && !p.take(")") {
			err = p.fail("expected )")
		}
		return n, true, err
	}
	if name := p.name(); name != "" {
		return node{kind: reference, text: name}, true, nil
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return n, false, p.fail("unexpected %q", r)
}

// repeated reads *, +, ? and {m,n} after an item.
func (p *parser) repeated(n node) (node, error) {
	for {
		least, most := 0, -1
		switch {
		case p.take("*"):
		case p.take("+"):
			least = 1
		case p.take("?"):
			most = 1
		case p.take("{"):
			var err error
			if least, most, err = p.bounds(); err != nil {
				return n, err
			}
		default:
			return n, nil
		}
		n = node{kind: repetition, parts: []node{n}, min: least, max: most}
	}
}

// bounds reads m}, m,} or m,n}.
func (p *parser) bounds() (least, most int, err error) {
	inside, _, ok := strings.Cut(p.text[p.at:], "}")
	low, high, comma := strings.Cut(inside, ",")
	least, err = strconv.Atoi(strings.TrimSpace(low))
	most = least
	if high = strings.TrimSpace(high); comma && high == "" {
		most = -1
	} else if comma && err == nil {
		most, err = strconv.Atoi(high)
	}
	if !ok || err != nil || least < 0 || most >= 0 && most < least || max(least, most) > maxRepeat {
		return 0, 0, p.fail("expected a repetition {m}, {m,} or {m,n} of at most %d", maxRepeat)
	}
	p.at += len(inside) + 1
	return least, most, nil
}

package grammar

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal reads "text".
func (p *parser) literal() (node, error) {
	p.at++
	var text strings.Builder
	for !p.take(`"`) {
		r, err := p.char()
		if err != nil {
			return node{}, err
		}
		text.WriteRune(r)
	}
	return node{kind: literal, text: text.String()}, nil
}

// class reads [a-z], [^a-z]. The result is a regular expression.
func (p *parser) class() (node, error) {
	p.at++
	var b strings.Builder
	b.WriteByte('[')
	if p.take("^") {
		b.WriteByte('^')
	}
	empty := true
	for !p.take("]") {
		from, err := p.char()
		if err != nil {
			return node{}, err
		}
		b.WriteString(quoteRune(from))
		if strings.HasPrefix(p.text[p.at:], "-") && !strings.HasPrefix(p.text[p.at:], "-]") {
			p.at++
			to, err := p.char()
			if err != nil {
				return node{}, err
			}
			if to < from {
				return node{}, p.fail("the range %q-%q is empty", from, to)
			}
			b.WriteString("-" + quoteRune(to))
		}
		empty = false
	}
	if empty {
		return node{}, p.fail("a character class is empty")
	}
	b.WriteByte(']')
	return node{kind: class, text: b.String()}, nil
}

// escapes are the characters that stand for others after a backslash.
var escapes = map[byte]rune{'n': '\n', 'r': '\r', 't': '\t', '\\': '\\', '"': '"', '[': '[', ']': ']', '-': '-', '^': '^', '/': '/', '\'': '\''}

// char reads one character of a literal or a class.
func (p *parser) char() (r rune, err error) {
	if p.at == len(p.text) || p.text[p.at] == '\n' {
		return 0, p.fail("a literal or a character class has no end")
	}
	if !p.take(`\`) {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += n
		return r, nil
	}
	if p.at == len(p.text) {
		return 0, p.fail("a backslash is the last character")
	}
	c := p.text[p.at]
	p.at++
	digits, ok := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if !ok {
		if r, ok = escapes[c]; !ok {
			return 0, p.fail("unknown escape \\%c", c)
		}
		return r, nil
	}
	if p.at+digits > len(p.text) {
		return 0, p.fail("\\%c needs %d hexadecimal digits", c, digits)
	}
	code, err := strconv.ParseUint(p.text[p.at:p.at+digits], 16, 32)
	if err != nil || !utf8.ValidRune(rune(code)) || code == 0 {
		return 0, p.fail("\\%c needs %d hexadecimal digits of a character other than NUL", c, digits)
	}
	p.at += digits
	return rune(code), nil
}

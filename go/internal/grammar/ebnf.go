package grammar

import (
	"fmt"
	"slices"
	"strings"
)

// ebnfToLark writes a grammar in GBNF, the form of EBNF that llama.cpp, sglang
// and vLLM take, in Lark's syntax. A grammar without "::=" is taken for one in
// Lark's syntax already.
//
// llguidance reads text with a lexer first, which GBNF does not know. So all that
// is regular, which is to say does not contain itself, becomes one token of the
// lexer, as large as can be: a grammar without recursion is one token and means
// exactly what it says. In others a token takes as much text as it can.
func ebnfToLark(text string) (string, error) {
	if !strings.Contains(text, "::=") {
		if strings.TrimSpace(text) == "" {
			return "", fmt.Errorf("is empty; it needs a rule root ::= …")
		}
		return text, nil
	}
	rules, err := parseGBNF(text)
	if err != nil {
		return "", err
	}
	w := &larkWriter{rules: rules, regular: map[string]bool{}}
	for _, name := range rules.order {
		w.isRegular(name, map[string]bool{})
	}
	return w.write(), nil
}

// larkWriter writes rules: regular ones as tokens of the lexer, in capitals.
type larkWriter struct {
	rules   *gbnf
	regular map[string]bool
	out     strings.Builder
	tokens  strings.Builder // those that have no name in the grammar
	count   int
}

// isRegular reports whether a rule leads to no rule that contains itself; above
// are the rules that have led to it.
func (w *larkWriter) isRegular(name string, above map[string]bool) bool {
	if known, ok := w.regular[name]; ok || above[name] {
		return known
	}
	above[name] = true
	regular := true
	w.rules.byName[name].walk(func(n node) {
		regular = regular && (n.kind != reference || w.isRegular(n.text, above))
	})
	delete(above, name)
	w.regular[name] = regular
	return regular
}

func (w *larkWriter) write() string {
	fmt.Fprintf(&w.out, "start: %s\n", w.name("root"))
	for _, name := range w.rules.order {
		body := w.rules.byName[name]
		if w.regular[name] {
			fmt.Fprintf(&w.out, "%s: %s\n", w.name(name), w.token(body))
		} else {
			fmt.Fprintf(&w.out, "%s: %s\n", w.name(name), w.rule(body))
		}
	}
	return w.out.String() + w.tokens.String()
}

// name is a rule's name in Lark.
func (w *larkWriter) name(name string) string {
	i := slices.Index(w.rules.order, name)
	if w.regular[name] {
		return fmt.Sprintf("TOKEN_%d", i)
	}
	return fmt.Sprintf("rule_%d", i)
}

// token writes a node that is regular.
func (w *larkWriter) token(n node) string { return n.write(w.name, w.token) }

// rule writes a node of a rule that is not regular: the parts of it that are
// become tokens.
func (w *larkWriter) rule(n node) string {
	if n.kind == sequence {
		return n.with(w.merge(n.parts)).write(w.name, w.rule)
	}
	if n.kind != reference && n.kind != alternatives && w.isToken(n) {
		return w.anonymous(n)
	}
	return n.write(w.name, w.rule)
}

// merge joins neighbours that are regular.
func (w *larkWriter) merge(parts []node) []node {
	var merged []node
	for i := 0; i < len(parts); {
		end := i
		for end < len(parts) && w.isToken(parts[end]) {
			end++
		}
		if end-i > 1 {
			merged = append(merged, node{kind: written, text: w.anonymous(node{kind: sequence, parts: parts[i:end]})})
			i = end
			continue
		}
		merged = append(merged, parts[i])
		i++
	}
	return merged
}

func (w *larkWriter) isToken(n node) bool {
	regular := true
	n.walk(func(n node) { regular = regular && (n.kind != reference || w.regular[n.text]) })
	return regular
}

// anonymous makes a token of a node.
func (w *larkWriter) anonymous(n node) string {
	w.count++
	name := fmt.Sprintf("PART_%d", w.count)
	fmt.Fprintf(&w.tokens, "%s: %s\n", name, w.token(n))
	return name
}

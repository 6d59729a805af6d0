package llm

import (
	"sync"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/grammar"
)

// grammars is a model's compiler of grammars, made when it is first needed: that
// looks at every token.
type grammars struct {
	once     sync.Once
	compiler *grammar.Compiler
	err      error
}

// matcher compiles a request's grammar.
func (m *loaded) matcher(g core.Grammar) (core.Matcher, error) {
	m.grammars.once.Do(func() { m.grammars.compiler, m.grammars.err = grammar.New(m.tok, m.ids, m.eos) })
	if m.grammars.err != nil {
		return nil, m.grammars.err
	}
	return m.grammars.compiler.Matcher(g)
}

// CheckGrammar compiles a grammar, for a request that brings it later. What is
// wrong with the grammar is an InvalidError.
func (l *LLM) CheckGrammar(g Grammar) error {
	m, err := l.model.matcher(g)
	if err != nil {
		return err
	}
	m.Close()
	return nil
}

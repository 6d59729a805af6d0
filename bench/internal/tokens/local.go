// Package tokens counts and makes tokens for the benchmarks: with a tokenizer on
// this machine, or through a server's /tokenize and /detokenize.
package tokens

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/minisgl/minisgl/go/tokenizer"
)

// Local is a tokenizer read from a directory in Hugging Face's layout.
type Local struct {
	tok     *tokenizer.Tokenizer
	dir     string
	vocab   int
	special int
}

// Open reads a tokenizer. dir may also be the path of its tokenizer.json.
func Open(dir string) (*Local, error) {
	if filepath.Base(dir) == definition {
		dir = filepath.Dir(dir)
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	empty, err := tok.Encode("", true)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	vocab, err := baseVocab(filepath.Join(dir, definition))
	if err != nil {
		return nil, err
	}
	return &Local{tok: tok, dir: dir, vocab: vocab, special: len(empty)}, nil
}

// FromEngine returns a running engine's tokenizer, which stays the engine's to close.
func FromEngine(tok *tokenizer.Tokenizer) (*Local, error) {
	empty, err := tok.Encode("", true)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return &Local{tok: tok, dir: "the engine", vocab: tok.VocabSize(), special: len(empty)}, nil
}

const definition = "tokenizer.json"

// baseVocab counts the vocabulary without added tokens, which transformers calls
// vocab_size.
func baseVocab(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("tokens: %w", err)
	}
	var file struct {
		Model struct {
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return 0, fmt.Errorf("tokens: %s: %w", path, err)
	}
	var byName map[string]json.RawMessage
	if json.Unmarshal(file.Model.Vocab, &byName) == nil && len(byName) > 0 {
		return len(byName), nil
	}
	var scored []json.RawMessage
	if json.Unmarshal(file.Model.Vocab, &scored) == nil && len(scored) > 0 {
		return len(scored), nil
	}
	return 0, fmt.Errorf("tokens: %s has no vocabulary", path)
}

// Close frees the tokenizer.
func (l *Local) Close() error { return l.tok.Close() }

// Encode returns the ids of text, with what the model puts around a text if special.
func (l *Local) Encode(text string, special bool) ([]int32, error) {
	return l.tok.Encode(text, special)
}

// Decode returns the text of ids, special tokens included.
func (l *Local) Decode(ids []int32) (string, error) { return l.tok.Decode(ids, false) }

// VocabSize returns the number of ids without added tokens.
func (l *Local) VocabSize() int { return l.vocab }

// AllTokens returns the number of ids with added tokens.
func (l *Local) AllTokens() int { return l.tok.VocabSize() }

// NumSpecial returns how many tokens the model puts around a text.
func (l *Local) NumSpecial() int { return l.special }

// Template renders one user message as the model's chat template does.
func (l *Local) Template(text string) (string, error) {
	return l.tok.RenderChat([]tokenizer.Message{{Role: "user", Content: text}}, tokenizer.TemplateOptions{AddGenerationPrompt: true})
}

// Source says where the tokens come from.
func (l *Local) Source() string { return "the tokenizer in " + l.dir }

// Package tokenizer turns text into token ids and back and renders chat
// templates, with the results of Hugging Face's tokenizers and transformers.
//
// Encoding is done by the Rust crate through github.com/daulet/tokenizers.
// Decoding is done here, on bytes, from the vocabulary: so it can be
// incremental, keeps NUL, and costs no call into C. Clean-up of spaces
// (clean_up_tokenization_spaces) is off everywhere, whatever a model's
// configuration says, because it changes code in answers.
package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ardanlabs/jinja"
	"github.com/daulet/tokenizers"
)

// MaxTextBytes is the longest text that Encode takes.
const MaxTextBytes = 64 << 20

// largeText is the length of a text from which on it is worth the milliseconds
// that giving its memory back takes.
const largeText = 256 << 10

// ErrClosed is returned by calls on a Tokenizer after Close.
var ErrClosed = errors.New("tokenizer: closed")

// Tokenizer turns text into token ids and back. It is safe for concurrent use.
type Tokenizer struct {
	mu  sync.RWMutex          // held for reading while lib is in use
	lib *tokenizers.Tokenizer // nil after Close

	tokens    []token // by id; ids without a token have present unset
	decoder   *pipeline
	bos, eos  int32 // -1: none
	templates map[string]*jinja.Template
	// names are the special tokens that templates see, such as bos_token.
	names map[string]string
}

// token is one entry of the vocabulary.
type token struct {
	text    string // as the vocabulary spells it
	present bool
	special bool
}

// newTokenizer loads a definition into the library.
func newTokenizer(def *definition) (*Tokenizer, error) {
	decoder, err := newPipeline(def.fields["decoder"])
	if err != nil {
		return nil, err
	}
	tokens, err := def.table()
	if err != nil {
		return nil, err
	}
	data, err := def.encode()
	if err != nil {
		return nil, err
	}
	lib, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("load vocabulary: %w", err)
	}
	return &Tokenizer{lib: lib, tokens: tokens, decoder: decoder, bos: -1, eos: -1, names: map[string]string{}}, nil
}

// Encode returns the ids of text. Special tokens written in the text are
// recognised, as Hugging Face does: text of users can hold control tokens.
// addSpecial adds what the model puts around a text, such as BOS; a BOS that the
// text spells is one more. Bytes that are not UTF-8 are read as U+FFFD.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	if len(text) > MaxTextBytes {
		return nil, fmt.Errorf("tokenizer: text has %d bytes, more than the %d allowed; split it", len(text), MaxTextBytes)
	}
	text = escapeNUL(validUTF8(text))
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.lib == nil {
		return nil, ErrClosed
	}
	ids := t.lib.EncodeWithOptions(text, addSpecial).IDs
	if len(text) >= largeText {
		giveBack()
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out, nil
}

// validUTF8 replaces each maximal ill-formed part of text by U+FFFD.
func validUTF8(text string) string {
	valid, rest := decodeLossy([]byte(text))
	if len(rest) > 0 {
		valid += replacement
	}
	return valid
}

// The library takes text that ends at its first NUL. So NUL travels as nulMark,
// a noncharacter, which the first normalizers of the vocabulary turn back. The
// marks themselves are escaped, so no text is ambiguous. One character stands
// for one NUL because pre-tokenizers ask where a text began.
const (
	nulMark    = "\U0009FFFE"
	escapeMark = "\U0009FFFF"
	escapedNUL = escapeMark + "\uFDD0"
	escapedEsc = escapeMark + "\uFDD1"
)

var nulEscaper = strings.NewReplacer("\x00", nulMark, nulMark, escapedNUL, escapeMark, escapedEsc)

func escapeNUL(text string) string { return nulEscaper.Replace(text) }

// Decode returns the text of ids, bit for bit that of Hugging Face's
// tokenizer.decode with clean_up_tokenization_spaces off. skipSpecial leaves
// special tokens out. Ids without a token, such as the padding of an embedding
// matrix, decode to nothing.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	t.mu.RLock()
	closed := t.lib == nil
	t.mu.RUnlock()
	if closed {
		return "", ErrClosed
	}
	d := t.NewDetokenizer(skipSpecial)
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(d.Push(id))
	}
	out.WriteString(d.Flush())
	return out.String(), nil
}

// LongestToken returns the bytes of the longest token, as the vocabulary spells
// it: a text of n times as many bytes has at least n tokens.
func (t *Tokenizer) LongestToken() int {
	longest := 1
	for _, token := range t.tokens {
		longest = max(longest, len(token.text))
	}
	return longest
}

// VocabSize returns the number of ids including added tokens: the largest id
// plus one.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// BOS returns the id of the token that begins a sequence, and whether the
// model names one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EOS returns the id of the token that ends a sequence, and whether the model
// names one.
func (t *Tokenizer) EOS() (int32, bool) { return t.eos, t.eos >= 0 }

// IsSpecial tells whether Decode leaves id out when it skips special tokens.
func (t *Tokenizer) IsSpecial(id int32) bool {
	tok, ok := t.token(id)
	return ok && tok.special
}

// TokenBytes returns the bytes that id alone stands for, which need not be
// whole characters. It is empty for ids without a token.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	tok, ok := t.token(id)
	if !ok {
		return nil
	}
	return t.decoder.bytes(tok.text)
}

func (t *Tokenizer) token(id int32) (token, bool) {
	if id < 0 || int(id) >= len(t.tokens) || !t.tokens[id].present {
		return token{}, false
	}
	return t.tokens[id], true
}

// Close frees the memory that the library holds outside the Go heap. It waits
// for calls that run; Encode and Decode return ErrClosed from then on. A
// second Close does nothing.
func (t *Tokenizer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lib == nil {
		return nil
	}
	err := t.lib.Close()
	t.lib = nil
	return err
}

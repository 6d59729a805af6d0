package tokenizer

import "slices"

// Detokenizer turns token ids into text one by one. It returns text as soon as
// no later token can change it: an incomplete UTF-8 sequence is held back, and
// so is a run of SentencePiece byte tokens, which decodes as a whole. All that
// Push and Flush return, joined, equals one Decode of all ids.
//
// A Detokenizer serves one sequence and one goroutine. It stays usable after
// its Tokenizer is closed.
type Detokenizer struct {
	t           *Tokenizer
	run         *run
	skipSpecial bool
	keep        []string
}

// NewDetokenizer starts the decoding of one sequence. skipSpecial leaves
// special tokens out of the text, as in Decode, but for those to keep.
func (t *Tokenizer) NewDetokenizer(skipSpecial bool, keep ...string) *Detokenizer {
	return &Detokenizer{t: t, run: t.decoder.start(), skipSpecial: skipSpecial, keep: keep}
}

// Push adds one id and returns the text that became certain, often none. An id
// without a token adds nothing.
func (d *Detokenizer) Push(id int32) string {
	tok, ok := d.t.token(id)
	if !ok || d.skipSpecial && tok.special && !slices.Contains(d.keep, tok.text) {
		return ""
	}
	return d.run.push(tok.text)
}

// Flush returns the text that was held back and starts a new sequence. Bytes
// that never became a character come out as U+FFFD.
func (d *Detokenizer) Flush() string {
	text := d.run.flush()
	d.run = d.t.decoder.start()
	return text
}

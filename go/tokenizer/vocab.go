package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Vocab is a vocabulary as the metadata of a GGUF file gives it, under the
// keys tokenizer.ggml.*.
type Vocab struct {
	Model  string    // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
	Pre    string    // how gpt2 text is cut before merging, e.g. "smollm", "llama-bpe", "qwen2"
	Tokens []string  // text by id
	Types  []int32   // kind by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; nil: all normal
	Merges []string  // "left right", best first; needed for gpt2
	Scores []float32 // by id, for llama without merges: its merges follow from them

	BOS, EOS, UNK, PAD int32 // ids; -1: none

	AddBOS, AddEOS bool   // what Encode adds when it adds special tokens
	AddSpacePrefix bool   // llama: the text begins with a space that is not in it
	ChatTemplate   string // Jinja source; empty: none
}

// Kinds of token in a GGUF file.
const (
	kindUnknown     = 2
	kindControl     = 3
	kindUserDefined = 4
	kindUnused      = 5
)

// Patterns that cut text before merging, from the tokenizer.json files that
// the makers of the models publish.
const (
	splitLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitGPT4o  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// preKinds gives the fields of a tokenizer.json for each known Vocab.Pre.
var preKinds = map[string]struct {
	normalizer   any
	pre          []any
	ignoreMerges bool
}{
	"default":          {pre: []any{byteLevel(true)}},
	"gpt-2":            {pre: []any{byteLevel(true)}},
	"smollm":           {pre: []any{map[string]any{"type": "Digits", "individual_digits": true}, byteLevel(true)}},
	"llama-bpe":        {pre: []any{split(splitLlama3), byteLevel(false)}, ignoreMerges: true},
	"llama3":           {pre: []any{split(splitLlama3), byteLevel(false)}, ignoreMerges: true},
	"llama-v3":         {pre: []any{split(splitLlama3), byteLevel(false)}, ignoreMerges: true},
	"tekken":           {pre: []any{split(splitTekken), byteLevel(false)}, ignoreMerges: true}, // Mistral Small 3.1, Ministral 3
	"gpt-4o":           {pre: []any{split(splitGPT4o), byteLevel(false)}},                      // Phi 4 mini
	"qwen2":            {pre: []any{split(splitQwen2), byteLevel(false)}, normalizer: map[string]any{"type": "NFC"}},
	"deepseek-r1-qwen": {pre: []any{split(splitQwen2), byteLevel(false)}, normalizer: map[string]any{"type": "NFC"}},
}

func byteLevel(useRegex bool) any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": useRegex}
}

func split(pattern string) any {
	return map[string]any{"type": "Split", "pattern": map[string]string{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

// FromVocab makes a tokenizer from the metadata of a GGUF file.
func FromVocab(v Vocab) (*Tokenizer, error) {
	t, err := fromVocab(v)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: vocabulary: %w", err)
	}
	return t, nil
}

func fromVocab(v Vocab) (*Tokenizer, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	def, err := v.definition()
	if err != nil {
		return nil, err
	}
	sources := map[string]string{}
	if v.ChatTemplate != "" {
		sources["default"] = v.ChatTemplate
	}
	templates, err := compileTemplates(sources)
	if err != nil {
		return nil, err
	}
	t, err := newTokenizer(def)
	if err != nil {
		return nil, err
	}
	t.templates = templates
	names := map[string]string{}
	for name, id := range map[string]int32{"bos_token": v.BOS, "eos_token": v.EOS, "unk_token": v.UNK, "pad_token": v.PAD} {
		if id >= 0 {
			names[name] = v.Tokens[id]
		}
	}
	t.name(def, names)
	return t, nil
}

// check refuses sizes and ids that do not fit together.
func (v *Vocab) check() error {
	n := len(v.Tokens)
	if n == 0 || n > maxID+1 {
		return fmt.Errorf("it has %d tokens, want 1..%d", n, maxID+1)
	}
	if v.Types != nil && len(v.Types) != n {
		return fmt.Errorf("it has %d token types for %d tokens", len(v.Types), n)
	}
	for name, id := range map[string]int32{"BOS": v.BOS, "EOS": v.EOS, "UNK": v.UNK, "PAD": v.PAD} {
		if id < -1 || int(id) >= n {
			return fmt.Errorf("the %s id is %d, want -1 or 0..%d", name, id, n-1)
		}
	}
	for id, text := range v.Tokens {
		if !utf8.ValidString(text) {
			return fmt.Errorf("token %d, %q, is not UTF-8", id, text)
		}
	}
	return nil
}

// definition builds the tokenizer.json of the vocabulary.
func (v *Vocab) definition() (*definition, error) {
	def := &definition{fields: map[string]json.RawMessage{"version": json.RawMessage(`"1.0"`)}}
	def.model = make(map[string]int32, len(v.Tokens))
	for id, text := range v.Tokens {
		if !v.padding(id) {
			def.model[text] = int32(id)
		}
	}
	def.added = v.added()
	merges, err := v.merges(def.model)
	if err != nil {
		return nil, err
	}
	model := map[string]any{"type": "BPE", "vocab": def.model, "merges": merges}
	switch v.Model {
	case "gpt2":
		err = v.setByteLevel(def, model)
	case "llama":
		err = v.setSentencePiece(def, model)
	default:
		err = fmt.Errorf("the model kind %q is not supported; supported are gpt2, llama", v.Model)
	}
	if err != nil {
		return nil, err
	}
	var bos, eos string
	if v.AddBOS && v.BOS >= 0 {
		bos = v.Tokens[v.BOS]
	}
	if v.AddEOS && v.EOS >= 0 {
		eos = v.Tokens[v.EOS]
	}
	return def, errors.Join(def.surround(bos, eos), def.set("model", model))
}

// padding tells whether llama.cpp's converter made up a token, for an id of the
// embedding matrix that the model's tokenizer does not have.
func (v *Vocab) padding(id int) bool {
	return v.Types != nil && v.Types[id] == kindUnused && v.Tokens[id] == fmt.Sprintf("[PAD%d]", id)
}

// added lists the tokens that are matched whole in the text. The named ones
// and those of kind control or unknown are special.
func (v *Vocab) added() []addedToken {
	var added []addedToken
	for i, text := range v.Tokens {
		id, kind := int32(i), int32(0)
		if v.Types != nil {
			kind = v.Types[i]
		}
		special := kind == kindControl || kind == kindUnknown ||
			id == v.BOS || id == v.EOS || id == v.UNK || id == v.PAD
		if text != "" && (special || kind == kindUserDefined) {
			added = append(added, addedToken{ID: id, Content: text, Special: special})
		}
	}
	return added
}

// setByteLevel fills in the fields of a byte-level BPE.
func (v *Vocab) setByteLevel(def *definition, model map[string]any) error {
	kind, ok := preKinds[v.Pre]
	if !ok {
		known := make([]string, 0, len(preKinds))
		for name := range preKinds {
			known = append(known, name)
		}
		slices.Sort(known)
		return fmt.Errorf("the pre-tokenizer kind %q is not known; known are %s", v.Pre, strings.Join(known, ", "))
	}
	model["ignore_merges"] = kind.ignoreMerges
	return errors.Join(
		def.set("normalizer", kind.normalizer),
		def.set("pre_tokenizer", map[string]any{"type": "Sequence", "pretokenizers": kind.pre}),
		def.set("decoder", byteLevel(true)))
}

// setSentencePiece fills in the fields of a SentencePiece BPE, as transformers
// does for LlamaTokenizer.
func (v *Vocab) setSentencePiece(def *definition, model map[string]any) error {
	model["byte_fallback"] = true
	model["fuse_unk"] = true
	if v.UNK >= 0 {
		model["unk_token"] = v.Tokens[v.UNK]
	}
	scheme := "never"
	steps := []any{
		map[string]any{"type": "Replace", "pattern": map[string]string{"String": "▁"}, "content": " "},
		map[string]any{"type": "ByteFallback"},
		map[string]any{"type": "Fuse"},
	}
	if v.AddSpacePrefix {
		scheme = "first"
		steps = append(steps, map[string]any{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	return errors.Join(
		def.set("pre_tokenizer", map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false}),
		def.set("decoder", map[string]any{"type": "Sequence", "decoders": steps}))
}

// merges returns the pairs to merge, best first.
func (v *Vocab) merges(ids map[string]int32) ([][2]string, error) {
	if len(v.Merges) == 0 && v.Model == "llama" {
		return v.derivedMerges(ids)
	}
	pairs := make([][2]string, len(v.Merges))
	for i, merge := range v.Merges {
		left, right, ok := strings.Cut(merge, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return nil, fmt.Errorf("merge %d, %q, is not two tokens with a space between them", i, merge)
		}
		for _, part := range []string{left, right, left + right} {
			if _, ok := ids[part]; !ok {
				return nil, fmt.Errorf("merge %d, %q, needs the token %q, which the vocabulary lacks", i, merge, part)
			}
		}
		pairs[i] = [2]string{left, right}
	}
	return pairs, nil
}

// maxPieceBytes bounds the pieces that merges are derived for. SentencePiece
// learns pieces of at most 16 characters; longer tokens are written by hand.
const maxPieceBytes = 512

// derivedMerges returns the merges that the scores imply: each way to cut a
// piece into two pieces, ordered by score, as transformers' generate_merges.
func (v *Vocab) derivedMerges(ids map[string]int32) ([][2]string, error) {
	if len(v.Scores) != len(v.Tokens) {
		return nil, fmt.Errorf("it has %d scores for %d tokens and no merges", len(v.Scores), len(v.Tokens))
	}
	type merge struct {
		pair        [2]string
		left, right int // characters
		score       float32
	}
	var all []merge
	for id, piece := range v.Tokens {
		if len(piece) > maxPieceBytes || ids[piece] != int32(id) {
			continue
		}
		first := len(all)
		total, left := utf8.RuneCountInString(piece), 0
		for cut := range piece {
			_, okL := ids[piece[:cut]]
			_, okR := ids[piece[cut:]]
			if cut > 0 && okL && okR {
				all = append(all, merge{[2]string{piece[:cut], piece[cut:]}, left, total - left, v.Scores[id]})
			}
			left++
		}
		slices.SortStableFunc(all[first:], func(a, b merge) int {
			return cmp.Or(cmp.Compare(ids[a.pair[0]], ids[b.pair[0]]), cmp.Compare(ids[a.pair[1]], ids[b.pair[1]]))
		})
	}
	slices.SortStableFunc(all, func(a, b merge) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.left, a.left), cmp.Compare(b.right, a.right))
	})
	pairs := make([][2]string, len(all))
	for i, m := range all {
		pairs[i] = m.pair
	}
	return pairs, nil
}

package dataset

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/minisgl/minisgl/bench/internal/numpyrand"
)

// Row is one request of a dataset. The first of Messages, IDs and Text that is
// set is its prompt.
type Row struct {
	Text      string
	IDs       []int32
	Messages  json.RawMessage
	PromptLen int // tokens; -1 if there is no tokenizer to tell
	OutputLen int // tokens to ask for
	At        time.Duration
	Group     int // of a shared prefix
	After     int // of traces and conversations: row whose answer must come first; -1 if there is none
	Extra     map[string]json.RawMessage
}

// Tokenizer turns text into ids and back. See package tokens.
type Tokenizer interface {
	Encode(text string, special bool) ([]int32, error)
	Decode(ids []int32) (string, error)
	VocabSize() int // without added tokens
	AllTokens() int // with them
	NumSpecial() int
	Template(text string) (string, error)
}

// Source is what rows are made from. The two generators advance in the order in
// which sglang's Python client uses them, so that the same seed gives its rows.
type Source struct {
	Path      string
	N         int
	Numpy     *numpyrand.Numpy
	Python    *numpyrand.Python
	Tokenizer Tokenizer // may be nil
	AsIDs     bool      // prompts as token ids instead of text
	Vocab     int       // ids to draw from without a tokenizer

	OutputLen    int // of every answer; 0: as the dataset says
	ContextLen   int // longest prompt and answer together; 0: no limit
	PromptSuffix string
	From, To     time.Duration // of a trace: only requests in this window; To 0 is the end
	Template     bool          // render prompts with the chat template
}

// allTokens is vocab with added tokens.
func (s *Source) allTokens() int {
	if s.Tokenizer != nil && s.Tokenizer.AllTokens() > 0 {
		return s.Tokenizer.AllTokens()
	}
	return s.vocab()
}

// Limits of what a file may hold.
const (
	maxFile   = 4 << 30
	maxLine   = 64 << 20
	maxPrompt = 4 << 20 // tokens
	maxTrace  = 50_000_000
)

// NewSource returns a source for n rows with generators of a seed.
func NewSource(path string, n int, seed uint32) *Source {
	return &Source{Path: path, N: n, Numpy: numpyrand.NewNumpy(seed), Python: numpyrand.NewPython(uint64(seed)), Vocab: DefaultVocab}
}

// DefaultVocab is the number of ids to draw from when nobody says; the ids exist
// in the vocabulary of every common model.
const DefaultVocab = 32000

func (s *Source) vocab() int {
	if s.Tokenizer != nil && s.Tokenizer.VocabSize() > 0 {
		return s.Tokenizer.VocabSize()
	}
	return max(s.Vocab, 1)
}

// lens draws lengths as sglang does: whole numbers from full·ratio, at least 1, to full.
func (s *Source) lens(full int, ratio float64, n int) ([]int, error) {
	if full <= 0 {
		return make([]int, n), nil
	}
	low := max(int(float64(full)*ratio), 1)
	if low > full {
		return nil, fmt.Errorf("dataset: range ratio is %v, want 0 to 1", ratio)
	}
	return s.Numpy.RandInt(low, full+1, n)
}

// length returns the tokens of text as a server that adds special tokens counts
// them; without a tokenizer an estimate from its words, and false.
func (s *Source) length(text string) (n int, exact bool, err error) {
	if s.Tokenizer == nil {
		return (len(strings.Fields(text))*4 + 2) / 3, false, nil
	}
	ids, err := s.Tokenizer.Encode(text, true)
	if err != nil {
		return 0, false, fmt.Errorf("dataset: %w", err)
	}
	return len(ids), true, nil
}

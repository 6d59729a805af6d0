package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// read reads a fixture that scripts/golden/tokenizer_*.py made.
func read[T any](name string) (v T, err error) {
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		return v, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return v, err
	}
	err = json.NewDecoder(z).Decode(&v)
	return v, err
}

func load[T any](t testing.TB, name string) T {
	t.Helper()
	v, err := read[T](name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

type vocabFixture struct {
	Tokens       []string  `json:"tokens"`
	Types        []int32   `json:"types"`
	Merges       []string  `json:"merges"`
	Scores       []float32 `json:"scores"`
	ChatTemplate string    `json:"chat_template"`
}

type idsFixture struct {
	Texts  []string             `json:"texts"`
	IDs    map[string][][]int32 `json:"ids"`
	Decode []struct {
		IDs     []int32 `json:"ids"`
		Text    string  `json:"text"`
		Skipped string  `json:"skipped"`
	} `json:"decode"`
}

// smollm2 is read once for all tests.
var smollm2 = sync.OnceValues(func() (vocabFixture, error) { return read[vocabFixture]("smollm2.json.gz") })

// smollm2Vocab is the vocabulary of SmolLM2 as its GGUF file gives it.
func smollm2Vocab(t testing.TB, pre string) Vocab {
	t.Helper()
	f, err := smollm2()
	if err != nil {
		t.Fatal(err)
	}
	return Vocab{
		Model: "gpt2", Pre: pre, Tokens: f.Tokens, Types: f.Types, Merges: f.Merges,
		BOS: 1, EOS: 2, UNK: 0, PAD: 2, ChatTemplate: f.ChatTemplate,
	}
}

// llamaVocab is a small SentencePiece vocabulary.
func llamaVocab(t testing.TB) Vocab {
	f := load[vocabFixture](t, "llama_vocab.json.gz")
	return Vocab{
		Model: "llama", Tokens: f.Tokens, Types: f.Types, Scores: f.Scores,
		BOS: 1, EOS: 2, UNK: 0, PAD: -1, AddBOS: true, AddSpacePrefix: true,
	}
}

func fromVocabT(t testing.TB, v Vocab) *Tokenizer {
	t.Helper()
	tok, err := FromVocab(v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tok.Close() })
	return tok
}

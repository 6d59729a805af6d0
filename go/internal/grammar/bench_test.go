package grammar

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// smollm2 is the tokenizer of SmolLM2, of 49152 tokens.
func smollm2(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	f, err := os.Open("../../tokenizer/testdata/smollm2.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var vocab tokenizer.Vocab // its fields have the fixture's names
	if err := json.NewDecoder(z).Decode(&vocab); err != nil {
		t.Fatal(err)
	}
	vocab.Model, vocab.Pre, vocab.BOS, vocab.EOS, vocab.PAD = "gpt2", "smollm", 1, 2, 2
	tok, err := tokenizer.FromVocab(vocab)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tok.Close(); err != nil {
			t.Error(err)
		}
	})
	return tok
}

// BenchmarkMask is a mask for each token of an output.
func BenchmarkMask(b *testing.B) {
	for name, c := range map[string]struct {
		g    core.Grammar
		text string
	}{
		"any text": {core.Grammar{Kind: core.GrammarRegex, Text: `(.|\n)*`}, "The capital of France is Paris, where the river flows."},
		"letters":  {core.Grammar{Kind: core.GrammarRegex, Text: `[A-Za-z ,.!?'\n]{1,4000}`}, "The capital of France is Paris, where the river flows."},
		"schema":   {core.Grammar{Kind: core.GrammarJSONSchema, Text: `{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"},"kind":{"enum":["a","b","c"]}},"required":["name","n","kind"],"additionalProperties":false}`}, `{"name": "The river of Paris", "n": 12345, "kind": "b"}`},
	} {
		b.Run(name, func(b *testing.B) {
			tok := smollm2(b)
			eos, _ := tok.EOS()
			compiler, err := New(tok, tok.VocabSize(), []int32{eos})
			if err != nil {
				b.Fatal(err)
			}
			ids, err := tok.Encode(c.text, false)
			if err != nil {
				b.Fatal(err)
			}
			mask := make([]int32, (tok.VocabSize()+31)/32)
			masks := 0
			for b.Loop() {
				m, err := compiler.Matcher(c.g)
				if err != nil {
					b.Fatal(err)
				}
				for n := range ids {
					if err := m.Mask(mask, ids[:n]); err != nil {
						b.Fatal(err)
					}
					masks++
				}
				m.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(masks), "ns/mask")
		})
	}
}

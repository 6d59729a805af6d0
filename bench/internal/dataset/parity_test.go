package dataset

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wordTokenizer makes a token of each word: "t12" is 12, others their length.
// Around a text it puts a 0.
type wordTokenizer struct{}

func (wordTokenizer) Encode(text string, special bool) ([]int32, error) {
	var ids []int32
	if special {
		ids = append(ids, 0)
	}
	for _, word := range strings.Fields(text) {
		id := len(word)
		if n, err := strconv.Atoi(strings.TrimPrefix(word, "t")); err == nil && word[0] == 't' {
			id = n
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

func (wordTokenizer) Decode(ids []int32) (string, error) {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = fmt.Sprintf("t%d", id)
	}
	return strings.Join(words, " "), nil
}

func (wordTokenizer) VocabSize() int                       { return 1000 }
func (wordTokenizer) AllTokens() int                       { return 1003 }
func (wordTokenizer) NumSpecial() int                      { return 1 }
func (wordTokenizer) Template(text string) (string, error) { return "<" + text + ">", nil }

func source(path string, n int, asIDs bool) *Source {
	s := NewSource(path, n, 42)
	s.Tokenizer, s.AsIDs = wordTokenizer{}, asIDs
	return s
}

const sharegpt = "testdata/sharegpt.json"

// Right values are those of sglang 0.5.23's loaders with the same tokenizer,
// after random.seed(42) and numpy.random.seed(42).
func TestRowsAreSglangs(t *testing.T) {
	shape := func(input, output int, ratio float64) RandomShape { return RandomShape{input, output, ratio} }
	prefix := PrefixShape{Groups: 2, PerGroup: 2, SystemLen: 4, QuestionLen: 3, OutputLen: 5, RangeRatio: 0.5}
	tests := []struct {
		name string
		load func() ([]Row, error)
		want []Row
	}{
		{"random-ids as text", func() ([]Row, error) { return source("", 4, false).RandomIDs(shape(6, 8, 0)) }, []Row{
			{Text: "t214 t215 t216", PromptLen: 3, OutputLen: 5}, {Text: "t331 t332 t333 t334", PromptLen: 4, OutputLen: 7},
			{Text: "t460 t461", PromptLen: 2, OutputLen: 2}, {Text: "t90 t91 t92 t93", PromptLen: 4, OutputLen: 3},
		}},
		{"random-ids as ids", func() ([]Row, error) { return source("", 3, true).RandomIDs(shape(6, 8, 0.5)) }, []Row{
			{IDs: []int32{614, 615, 616, 617, 618}, PromptLen: 5, OutputLen: 6}, {IDs: []int32{122, 123, 124, 125, 126, 127}, PromptLen: 6, OutputLen: 8},
			{IDs: []int32{468, 469, 470}, PromptLen: 3, OutputLen: 8},
		}},
		{"random", func() ([]Row, error) { return source(sharegpt, 4, false).Random(shape(6, 8, 0.5)) }, []Row{
			{Text: "t0 t2 t0 t2", PromptLen: 4, OutputLen: 6}, {Text: "t0 t2 t2 t2 t2", PromptLen: 5, OutputLen: 8},
			{Text: "t0 t2", PromptLen: 2, OutputLen: 8}, {Text: "t0 t2 t2 t2", PromptLen: 4, OutputLen: 5},
		}},
		{"sharegpt", func() ([]Row, error) { return source(sharegpt, 10, false).ShareGPT() }, []Row{
			{Text: "e1", PromptLen: 2, OutputLen: 5}, {Text: "c1 c2 c3 c4 c5", PromptLen: 6, OutputLen: 4}, {Text: "d1 d2", PromptLen: 3, OutputLen: 5},
			{Text: "f1 f2 f3", PromptLen: 4, OutputLen: 2}, {Text: "one two three", PromptLen: 4, OutputLen: 3}, {Text: "g1 g2", PromptLen: 3, OutputLen: 3},
		}},
		{"generated-shared-prefix", func() ([]Row, error) { return source("", 0, false).SharedPrefix(prefix) }, []Row{
			{Text: "t738 t678\n\nt26", PromptLen: 4, OutputLen: 4}, {Text: "t641 t25 t275 t223\n\nt29 t219 t506", PromptLen: 8, OutputLen: 3, Group: 1},
			{Text: "t641 t25 t275 t223\n\nt894 t87 t423", PromptLen: 8, OutputLen: 4, Group: 1}, {Text: "t738 t678\n\nt199", PromptLen: 4, OutputLen: 4},
		}},
	}
	for _, tt := range tests {
		got, err := tt.load()
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for i := range got {
			if tt.name == "generated-shared-prefix" {
				got[i].Group = tt.want[i].Group // the order of the groups is not in the reference
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The state after the rows gives the reference's next number: np.random.exponential(0.5).
func TestGeneratorsGoOn(t *testing.T) {
	s := source("", 4, false)
	if _, err := s.RandomIDs(RandomShape{6, 8, 0}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Numpy.Exponential(0.5), 0.20301409165689538; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWithoutTokenizer(t *testing.T) {
	s := NewSource(sharegpt, 4, 42)
	rows, err := s.RandomIDs(RandomShape{6, 8, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if len(strings.Fields(r.Text)) != 6 || r.PromptLen != -1 || r.OutputLen != 8 {
			t.Errorf("%+v, want 6 words", r)
		}
	}
	rows, err = NewSource(sharegpt, 4, 42).Random(RandomShape{6, 8, 1})
	if err != nil || len(rows) != 4 || len(strings.Fields(rows[0].Text)) != 6 {
		t.Errorf("%+v, %v; want 4 prompts of 6 words", rows, err)
	}
	ids := NewSource("", 4, 42)
	ids.AsIDs, ids.Vocab = true, 50
	rows, err = ids.RandomIDs(RandomShape{100, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		for _, id := range r.IDs {
			if id < 0 || id >= 50 {
				t.Fatalf("id %d outside the vocabulary", id)
			}
		}
	}
}

func TestShareGPTOptions(t *testing.T) {
	s := source(sharegpt, 10, false)
	s.OutputLen, s.ContextLen, s.PromptSuffix, s.Template = 7, 12, " now", true
	rows, err := s.ShareGPT()
	if err != nil || len(rows) != 5 { // one is longer than 12
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if r := rows[0]; r.Text != "<e1 nowAssistant:>" || r.OutputLen != 7 {
		t.Errorf("%+v", r)
	}
}

package dataset

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func row(messages string, output, after int) Row {
	return Row{Messages: json.RawMessage(messages), PromptLen: -1, OutputLen: output, After: after}
}

// Each turn is a row behind the one before; a question without an answer is none.
func TestTurns(t *testing.T) {
	array := `[{"conversations":[{"value":"a"},{"value":"b c"},{"value":"d"},{"value":"e"},{"value":"f"}]},{"conversations":[{"value":"alone"}]}]`
	lines := `{"conversation":[{"content":"a"},{"content":"b c"},{"content":"d"},{"content":"e"},{"content":"f"}]}` + "\nnot json\n"
	first := `[{"role":"user","content":"a"}]`
	second := `[{"role":"user","content":"a"},{"role":"assistant","content":"b c"},{"role":"user","content":"d"}]`
	for name, tt := range map[string]struct {
		text   string
		most   int
		output int
		want   []Row
	}{
		"array":  {array, 0, 0, []Row{row(first, 3, -1), row(second, 2, 0)}}, // the tokenizer adds 1
		"lines":  {lines, 0, 0, []Row{row(first, 3, -1), row(second, 2, 0)}},
		"cut":    {array, 1, 0, []Row{row(first, 3, -1)}},
		"length": {lines, 0, 9, []Row{row(first, 9, -1), row(second, 9, 0)}},
	} {
		s := source(write(t, tt.text), 5, false)
		s.OutputLen = tt.output
		got, err := s.Turns(RandomShape{}, tt.most)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTurnsAreBounded(t *testing.T) {
	if _, err := source(write(t, "[{"), 5, false).Turns(RandomShape{}, 0); err == nil || !strings.Contains(err.Error(), "conversation 1") {
		t.Errorf("%v", err)
	}
	if _, err := source("", 5, true).Turns(RandomShape{}, 0); err == nil {
		t.Error("conversations as ids: no error")
	}
	if _, err := source("", 1, false).SharedPrefix(PrefixShape{Groups: 10_000, PerGroup: 1000, Turns: 2}); err == nil {
		t.Error("20 million turns: no error")
	}
}

// The ids of the turns of sglang 0.5.23's generated-shared-prefix with 2 turns,
// after random.seed(42) and numpy.random.seed(42), with the same tokenizer.
func TestPrefixTurnsAreSglangs(t *testing.T) {
	rows, err := source("", 0, false).SharedPrefix(PrefixShape{Groups: 2, PerGroup: 2, SystemLen: 4, QuestionLen: 3, OutputLen: 5, RangeRatio: 0.5, Turns: 2})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, r := range rows {
		var said []message
		if err := json.Unmarshal(r.Messages, &said); err != nil {
			t.Fatal(err)
		}
		if len(said) != 1+2*(i%2) || r.After != -1+(i%2)*i {
			t.Errorf("row %d holds %d messages and waits for %d", i, len(said), r.After)
		}
		got = append(got, said[len(said)-1].Content)
	}
	if diff := cmp.Diff(sglangTurns, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var sglangTurns = []string{"t641 t25 t275 t223\n\nt26", "t199", "t738 t678\n\nt6 t808 t700", "t341 t155 t960", "t641 t25 t275 t223\n\nt894 t87 t423", "t29 t219 t506", "t738 t678\n\nt651 t546 t221", "t591 t811"}

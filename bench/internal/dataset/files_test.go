package dataset

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCustom(t *testing.T) {
	path := write(t, `{"conversations":[{"content":"a b"},{"value":"c d"}]}
not json

{"conversation":[{"value":"alone"}]}
`)
	rows, err := source(path, 5, false).Custom()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Row{{Text: "a b", PromptLen: 3, OutputLen: 3}}, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOpenAI(t *testing.T) {
	path := write(t, `{"model":"x","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"temperature":0.5}
{"messages":[]}
{"messages":[{"role":"user","content":"yo"}]}
{"messages":[{"role":"user","content":"not asked for"}]}
`)
	rows, err := source(path, 2, false).OpenAI()
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`), PromptLen: -1, OutputLen: 9, Extra: map[string]json.RawMessage{"temperature": json.RawMessage("0.5")}},
		{Messages: json.RawMessage(`[{"role":"user","content":"yo"}]`), PromptLen: -1, OutputLen: 256},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Prompts have the recorded lengths, and share what their hash ids say.
func TestMooncake(t *testing.T) {
	path := write(t, `{"timestamp": 3000, "input_length": 1300, "output_length": 20, "hash_ids": [7, 8, 10]}
{"timestamp": 1000, "input_length": 1030, "output_length": 10, "hash_ids": [7, 8, 9]}
`)
	rows, err := source(path, 10, true).Trace(Mooncake)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].At != 0 || rows[1].At != 2*time.Second || rows[0].OutputLen != 10 {
		t.Fatalf("%d rows, %+v", len(rows), rows)
	}
	a, b := rows[0].IDs, rows[1].IDs
	if len(a) != 1030 || len(b) != 1300 || !slices.Equal(a[:1024], b[:1024]) || slices.Equal(a[1024:], b[1024:1030]) {
		t.Errorf("lengths %d, %d; want 1030 and 1300 that share 1024", len(a), len(b))
	}
}

func TestQwen(t *testing.T) {
	path := write(t, `{"chat_id": 5, "parent_chat_id": -1, "timestamp": 10.5, "input_length": 20, "output_length": 3, "type": "text", "turn": 1, "hash_ids": [1, 2]}
{"chat_id": 6, "parent_chat_id": 5, "timestamp": 12.0, "input_length": 40, "output_length": 4, "type": "text", "turn": 2, "hash_ids": [1, 3, 4]}
`)
	rows, err := source(path, 10, true).Trace(Qwen)
	if err != nil {
		t.Fatal(err)
	}
	if rows[0].After != -1 || rows[1].After != 0 || rows[1].At != 1500*time.Millisecond || !slices.Equal(rows[0].IDs[:16], rows[1].IDs[:16]) || len(rows[1].IDs) != 40 {
		t.Errorf("%+v", rows)
	}
}

func TestBurstGPT(t *testing.T) {
	path := write(t, `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,Conversation log
`)
	rows, err := source(path, 10, false).Trace(BurstGPT)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v; want the two that were answered", len(rows), err)
	}
	if rows[1].At != 113*time.Second || rows[1].PromptLen != 417 || rows[1].OutputLen != 276 {
		t.Errorf("%+v", rows[1])
	}
}

func TestRequests(t *testing.T) {
	path := write(t, `{"timestamp": 1, "prompt": "hello", "max_tokens": 4}
{"timestamp": 1.25, "messages": [{"role":"user","content":"hi"}], "seed": 3}
`)
	rows, err := source(path, 10, false).Trace(Requests)
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{Text: "hello", PromptLen: -1, OutputLen: 4, After: -1},
		{Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`), PromptLen: -1, OutputLen: 256, At: 250 * time.Millisecond, After: -1, Extra: map[string]json.RawMessage{"seed": json.RawMessage("3")}},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The window and the number count on the sorted times, which begin anew.
func TestTraceWindow(t *testing.T) {
	path := write(t, `{"timestamp": 4, "prompt": "e"}
{"timestamp": 1, "prompt": "b"}
{"timestamp": 0, "prompt": "a"}
{"timestamp": 3, "prompt": "d"}
{"timestamp": 2, "prompt": "c"}
`)
	s := source(path, 2, false)
	s.From, s.To = time.Second, 4*time.Second
	rows, err := s.Trace(Requests)
	if err != nil || len(rows) != 2 || rows[0].Text != "b" || rows[0].At != 0 || rows[1].Text != "c" || rows[1].At != time.Second {
		t.Errorf("%+v, %v", rows, err)
	}
	s.From = time.Hour
	if rows, err := s.Trace(Requests); err != nil || len(rows) != 0 {
		t.Errorf("%+v, %v; want no rows", rows, err)
	}
}

func TestBadFiles(t *testing.T) {
	tests := []struct {
		name, text string
		load       func(*Source) ([]Row, error)
		want       string
	}{
		{"sharegpt", `{"conversations":[]}`, (*Source).ShareGPT, "want a JSON array"},
		{"sharegpt cut", `[{"conversations":[{"value":"a`, (*Source).ShareGPT, "conversation 1"},
		{"mooncake no time", `{"input_length":1,"output_length":1}`, trace(Mooncake), "line 1: no usable timestamp"},
		{"mooncake negative", `{"timestamp":1,"input_length":-5,"output_length":1}`, trace(Mooncake), "a prompt of -5 tokens"},
		{"mooncake huge", `{"timestamp":1,"input_length":1,"output_length":999999999999}`, trace(Mooncake), "an answer of 999999999999 tokens"},
		{"mooncake garbage", "\n\nxyz", trace(Mooncake), "line 3"},
		{"burstgpt columns", "a,b\n1,2\n", trace(BurstGPT), `no column "Timestamp"`},
		{"burstgpt number", "Timestamp,Request tokens,Response tokens\nx,2,3\n", trace(BurstGPT), `column "Timestamp"`},
		{"requests", `{"timestamp":1}`, trace(Requests), "messages or a prompt"},
	}
	for _, tt := range tests {
		_, err := tt.load(source(write(t, tt.text), 5, false))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
	for _, path := range []string{"", "/nonexistent"} {
		if _, err := source(path, 5, false).ShareGPT(); err == nil {
			t.Errorf("path %q: no error", path)
		}
	}
}

func trace(kind TraceKind) func(*Source) ([]Row, error) {
	return func(s *Source) ([]Row, error) { return s.Trace(kind) }
}

func TestSharedPrefixGroups(t *testing.T) {
	s := source("", 0, true)
	shape := PrefixShape{Groups: 3, PerGroup: 4, SystemLen: 8, QuestionLen: 4, OutputLen: 2, RangeRatio: 1, Ordered: true}
	rows, err := s.SharedPrefix(shape)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		if r.Group != i/4 || len(r.IDs) != 12 || !slices.Equal(r.IDs[:8], rows[r.Group*4].IDs[:8]) {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	shape.Zipf, shape.PerGroup = 2, 1000
	count := map[int]int{}
	rows, err = source("", 0, true).SharedPrefix(shape)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		count[r.Group]++
	}
	// Weights 1, 1/4, 1/9: shares 0.7347, 0.1837, 0.0816 of 3000.
	if count[0] < 2100 || count[0] > 2300 || count[1] < 450 || count[1] > 650 || count[2] < 170 || count[2] > 320 {
		t.Errorf("prompts per group %v", count)
	}
}

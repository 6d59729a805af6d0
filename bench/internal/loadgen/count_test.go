package loadgen

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/go/openai"
)

// decodeAll decodes events that arrive 10 ms apart, the first at 10 ms.
func decodeAll(finish bool, data ...string) *record.Record {
	begin := time.Unix(0, 0)
	x := &Exchange{Finish: finish, Status: 200, Done: begin.Add(time.Hour)}
	for i, d := range data {
		x.Events = append(x.Events, openai.Event{Data: d, At: begin.Add(time.Duration(i+1) * 10 * ms)})
	}
	rec := &record.Record{PromptTokens: -1}
	NewTarget(nil, Chat, "", Options{}, TextRequests([]string{""}, 8)).Decode(x, begin, rec)
	return rec
}

const (
	role    = `{"choices":[{"delta":{"role":"assistant","content":""}}]}`
	text    = `{"choices":[{"delta":{"content":"a"},"finish_reason":null}],"usage":null}`
	blank   = `{"choices":[{"delta":{"content":""}}]}`
	tool    = `{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`
	think   = `{"choices":[{"delta":{"reasoning":"a","content":null}}]}`
	stop    = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`
	usage3  = `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}`
	usage0  = `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}`
	role0   = `{"choices":[{"delta":{"role":"assistant"}}],"usage":{"completion_tokens":0}}`
	text0   = `{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":0}}`
	text1   = `{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}`
	blank1  = `{"choices":[{"delta":{"content":""}}],"usage":{"completion_tokens":1}}`
	text2   = `{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":2}}`
	text3   = `{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":3}}`
	stop3   = `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":3}}`
	textEnd = `{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"completion_tokens":3}}`
)

func TestCountTokens(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		source record.TokenSource
		first  int
		want   []int // times in ms
	}{
		{"chunks", []string{role, text, text, stop}, record.Chunks, 1, []int{20, 30}},
		{"blank chunks bear nothing without usage", []string{role, text, blank, text, stop}, record.Chunks, 1, []int{20, 40}},
		{"any channel counts", []string{role, think, tool, text, stop}, record.Chunks, 1, []int{20, 30, 40}},
		{"nothing at all", []string{role, stop}, record.NoTokens, 0, nil},
		{"usage of 0", []string{role, stop, usage0}, record.NoTokens, 0, nil},
		{"text but a usage of 0", []string{role, text, stop, usage0}, record.Chunks, 1, []int{20}},
		{"final usage", []string{role, text, text, text, stop, usage3}, record.FinalUsage, 1, []int{20, 30, 40}},
		{"final usage, more tokens than chunks", []string{role, text, text, stop, usage3}, record.FinalUsage, 2, []int{20, 20, 30}},
		{"final usage, fewer tokens than chunks", []string{text, text, text, text, stop, usage3}, record.FinalUsage, 1, []int{10, 20, 30}},
		{"final usage, no text", []string{role, blank, stop, usage3}, record.FinalUsage, 2, []int{20, 20, 30}},
		{"usage with the last text only", []string{text, text, textEnd}, record.FinalUsage, 1, []int{10, 20, 30}},
		{"continuous", []string{role0, text1, text2, text3, stop3, usage3}, record.ContinuousUsage, 1, []int{20, 30, 40}},
		{"continuous, two tokens in a chunk", []string{role0, text1, text3, stop3, usage3}, record.ContinuousUsage, 1, []int{20, 25, 30}},
		{"continuous, two tokens in the first", []string{text2, text3, stop3}, record.ContinuousUsage, 2, []int{10, 10, 20}},
		{"continuous, empty first token", []string{role0, blank1, text2, text3, stop3}, record.ContinuousUsage, 1, []int{20, 30, 40}},
		{"continuous, chunk of 0 tokens leaves its gap", []string{text1, text1, text3, stop3}, record.ContinuousUsage, 1, []int{10, 20, 30}},
		{"continuous, late count", []string{text0, text1, text2, stop3}, record.ContinuousUsage, 1, []int{10, 30, 40}},
		{"continuous, last token only in the closing usage", []string{text1, text2, stop, usage3}, record.ContinuousUsage, 1, []int{10, 20, 30}},
		{"continuous, one token", []string{text1, stop}, record.ContinuousUsage, 1, []int{10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := decodeAll(true, tt.events...)
			if !rec.OK() || rec.Source != tt.source || rec.FirstChunk != tt.first {
				t.Errorf("ended as %v %q, source %v, first chunk %d; want success, %v, %d", rec.Kind, rec.Err, rec.Source, rec.FirstChunk, tt.source, tt.first)
			}
			var got []int
			for _, at := range rec.Tokens {
				got = append(got, int(at/ms))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("token times in ms (-want +got):\n%s", diff)
			}
		})
	}
}

// A chunk that brought no token divides nothing by zero: its gap goes to the next.
func TestB01_ChunksWithoutTokens(t *testing.T) {
	rec := decodeAll(true, text1, text1, text1, text3, stop3)
	if diff := cmp.Diff([]time.Duration{10 * ms, 25 * ms, 40 * ms}, rec.Tokens); diff != "" || !rec.OK() {
		t.Errorf("%v %q, token times (-want +got):\n%s", rec.Kind, rec.Err, diff)
	}
}

func TestDecodeFailures(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		finish bool
		kind   record.Kind
		err    string
	}{
		{"error object", []string{text, `{"error":{"message":"no pages","code":500}}`}, false, record.StreamError, "no pages"},
		{"error text", []string{`{"error":"no pages"}`}, false, record.StreamError, `{"error":"no pages"}`},
		{"null error is none", []string{`{"error":null,"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`}, true, record.OK, ""},
		{"aborted", []string{text, `{"choices":[{"delta":{},"finish_reason":"abort"}]}`}, true, record.StreamError, "finish_reason is abort"},
		{"cut JSON", []string{text, `{"choices":[`}, false, record.BadJSON, `unexpected end of JSON input: {"choices":[`},
		{"not an object", []string{`3`}, true, record.BadJSON, "json: unexpected number at byte 1: 3"},
		{"absurd usage", []string{`{"choices":[],"usage":{"completion_tokens":1000000000000}}`}, true, record.BadJSON, "the server's count of completion tokens is 1000000000000, want 0 to 1048576"},
		{"negative usage", []string{`{"choices":[],"usage":{"completion_tokens":-1}}`}, true, record.BadJSON, "the server's count of completion tokens is -1, want 0 to 1048576"},
		{"empty stream", nil, false, record.Truncated, "the stream ended without [DONE]"},
		{"only [DONE]", nil, true, record.Truncated, "the stream ended without a finish_reason"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := decodeAll(tt.finish, tt.events...)
			if rec.Kind != tt.kind || rec.Err != tt.err {
				t.Errorf("ended as %v: %q; want %v: %q", rec.Kind, rec.Err, tt.kind, tt.err)
			}
		})
	}
}

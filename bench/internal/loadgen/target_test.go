package loadgen

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/record"
)

// Every API must give the same tokens at the same times.
func TestAPIs(t *testing.T) {
	cfg := mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, PromptTokens: 7, CachedTokens: 3}
	for api, want := range map[API]record.TokenSource{
		Chat: record.ContinuousUsage, Completions: record.ContinuousUsage, Generate: record.ContinuousUsage, TensorRT: record.Chunks,
		ChatSocket: record.ContinuousUsage,
	} {
		measure(t, cfg, load{n: 1, maxTokens: 16, api: api}, func(got []record.Record, _ *mockserver.Server) {
			r := got[0]
			if !r.OK() || r.Source != want || len(r.Text) != len(" t0")*10+len(" t10")*6 {
				t.Errorf("%s: ended as %v %q, source %v, text %q", api.Path(), r.Kind, r.Err, r.Source, r.Text)
			}
			if api != TensorRT && (r.PromptTokens != 7 || r.CachedTokens != 3) {
				t.Errorf("%s: %d prompt tokens, %d cached; want 7, 3", api.Path(), r.PromptTokens, r.CachedTokens)
			}
			if diff := cmp.Diff(tokensAt(50*ms, 5*ms, 16), r.Tokens); diff != "" {
				t.Errorf("%s: token times (-want +got):\n%s", api.Path(), diff)
			}
		})
	}
}

// Failures inside a stream of status 200 are failures in every API.
func TestAPIErrors(t *testing.T) {
	for _, api := range []API{Chat, Completions, Generate, TensorRT, ChatSocket} {
		for kind, cfg := range map[record.Kind]mockserver.Config{
			record.StreamError: {ErrorAfter: 3}, record.Truncated: {CutAfter: 3}, record.HTTPStatus: {FailEvery: 1}, record.BadJSON: {GarbageAfter: 3},
		} {
			measure(t, cfg, load{n: 2, maxTokens: 8, api: api}, func(got []record.Record, _ *mockserver.Server) {
				for _, r := range got {
					if r.Kind != kind {
						t.Errorf("%s: ended as %v %q, want %v", api.Path(), r.Kind, r.Err, kind)
					}
				}
			})
		}
	}
}

// An answer in one piece has a whole latency and a number of tokens.
func TestDocument(t *testing.T) {
	cfg := mockserver.Config{TTFT: 50 * ms, ITL: 5 * ms, PromptTokens: 7}
	for _, api := range []API{Chat, Completions, Generate} {
		measure(t, cfg, load{n: 1, maxTokens: 11, api: api, options: Options{NoStream: true}}, func(got []record.Record, _ *mockserver.Server) {
			r := got[0]
			if !r.OK() || len(r.Tokens) != 11 || r.End()-r.Start != 100*ms || r.PromptTokens != 7 || !r.WholeAnswer {
				t.Errorf("%s: %+v", api.Path(), r)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	extra := map[string]json.RawMessage{"lora_path": json.RawMessage(`"a"`), "temperature": json.RawMessage("0.5")}
	tests := []struct {
		api  API
		opts Options
		req  Request
		want string
	}{
		{Chat, Options{Model: "m"}, Request{Messages: json.RawMessage(`[{"role":"system","content":"s"}]`), MaxTokens: 3},
			`{"model":"m","messages":[{"role":"system","content":"s"}],"max_tokens":3,"temperature":0,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`},
		{Completions, Options{Model: "m", KeepEOS: true, Temperature: 1, TopP: 0.5}, Request{Text: "p", MaxTokens: 3},
			`{"model":"m","prompt":"p","max_tokens":3,"temperature":1,"top_p":0.5,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`},
		{Completions, Options{Model: "m", NoStream: true}, Request{IDs: []int32{1, 2}, MaxTokens: 3},
			`{"model":"m","prompt":[1,2],"max_tokens":3,"temperature":0,"ignore_eos":true,"stream":false}`},
		{Generate, Options{}, Request{IDs: []int32{1, 2}, MaxTokens: 3},
			`{"input_ids":[1,2],"sampling_params":{"temperature":0,"max_new_tokens":3,"ignore_eos":true},"stream":true}`},
		{Generate, Options{Extra: extra}, Request{Text: "p", MaxTokens: 3},
			`{"lora_path":"a","sampling_params":{"temperature":0,"max_new_tokens":3,"ignore_eos":true},"stream":true,"temperature":0.5,"text":"p"}`},
		{Completions, Options{Extra: extra, NoStream: true}, Request{Text: "p", MaxTokens: 3, Extra: map[string]json.RawMessage{"temperature": json.RawMessage("1"), "n": json.RawMessage("1")}},
			`{"ignore_eos":true,"lora_path":"a","max_tokens":3,"model":"","n":1,"prompt":"p","stream":false,"temperature":1}`},
		{TensorRT, Options{}, Request{Text: "p", MaxTokens: 3},
			`{"accumulate_tokens":true,"text_input":"p","temperature":0.000001,"top_p":1,"max_tokens":3,"stream":true,"min_length":3,"end_id":1048576}`},
	}
	for _, tt := range tests {
		got, err := NewTarget(nil, tt.api, "", tt.opts, nil).body(tt.req, usageContinuous)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.api.Path(), diff)
		}
	}
}

func TestCheck(t *testing.T) {
	chat, ids := Request{Messages: json.RawMessage("[]")}, Request{IDs: []int32{1}}
	for _, tt := range []struct {
		api API
		req Request
		ok  bool
	}{{Chat, chat, true}, {Generate, chat, false}, {Chat, ids, false}, {Generate, ids, true}, {Completions, ids, true}, {TensorRT, ids, false}} {
		if err := tt.api.Check(tt.req); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.api.Path(), err)
		}
	}
}

// Requests that wait for a slot go in the order of the schedule.
func TestTurns(t *testing.T) {
	cfg := mockserver.Config{TTFT: 10 * ms}
	measure(t, cfg, load{n: 30, concurrency: 1, maxTokens: 1}, func(got []record.Record, server *mockserver.Server) {
		for i, body := range server.Bodies() {
			if !strings.Contains(body, fmt.Sprintf(`"prompt %d"`, i)) {
				t.Errorf("request %d in line is %s", i, body)
			}
		}
		if last := got[len(got)-1].Start; last != 290*ms {
			t.Errorf("the last one started at %v, want 290 ms", last)
		}
	})
}

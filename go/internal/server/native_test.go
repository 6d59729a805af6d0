package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

var latencyPattern = regexp.MustCompile(`"e2e_latency":[0-9.e-]+`)

func TestGenerateTranscripts(t *testing.T) {
	hello := []llm.Event{token("Hel", 1), token("lo", 2), atEOS(2)}
	stopped := finished(token("", 2), llm.FinishStop)
	stopped.Stop = "END"
	tests := []struct {
		name, body string
		script     []llm.Event
	}{
		{"stream", `{"text":"hi","stream":true}`, hello},
		{"length", `{"input_ids":[1,2],"stream":true,"rid":"mine"}`, []llm.Event{token("a", 1), finished(token("b", 2), llm.FinishLength)}},
		{"whole", `{"text":"hi"}`, hello},
		{"stop_string", `{"text":"hi","sampling_params":{"stop":["END"]}}`, []llm.Event{token("a", 1), stopped}},
		{"batch_of_one", `{"text":["hi"],"stream":true}`, hello},
		{"plain", `{"prompt":"hi","max_tokens":4}`, hello},
		{"plain_forged", `{"prompt":"hi","max_tokens":4}`, []llm.Event{token("a\n\ndata: [DONE]\r\n\r\nb", 1), token("", 2), atEOS(2)}},
		{"error_later", `{"text":"hi","stream":true}`, []llm.Event{token("a", 1), {Finish: llm.FinishError, Err: errors.New("out of luck")}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, newFake(test.script...), Config{})
			w := do(s, "POST", "/generate", test.body)
			golden(t, "generate_"+test.name, w.Header().Get("Content-Type")+"\n"+latencyPattern.ReplaceAllString(w.Body.String(), `"e2e_latency":0`))
		})
	}
}

func TestGenerateBatch(t *testing.T) {
	e := fourAnswers()
	s := newServer(t, e, Config{})
	w := do(s, "POST", "/generate", `{"input_ids":[[1],[2]],"rid":["r","s"],"sampling_params":{"n":2}}`)
	golden(t, "generate_batch", latencyPattern.ReplaceAllString(w.Body.String(), `"e2e_latency":0`))
	e.requests = nil
	w = do(s, "POST", "/generate", `{"input_ids":[[1],[2]],"stream":true,"sampling_params":[{"n":3,"max_new_tokens":2},{}]}`)
	last := map[string]string{}
	for _, data := range streamed(t, w.Body.String()) {
		text, _, _ := strings.Cut(strings.TrimPrefix(data, `{"text":"`), `"`)
		last[data[strings.LastIndex(data, `"index":`):]] = text
	}
	if diff := cmp.Diff(map[string]string{`"index":0}`: "a0", `"index":1}`: "a1!", `"index":2}`: "b0?", `"index":3}`: ""}, last); diff != "" {
		t.Error(diff)
	}
	limits := []int{}
	for _, req := range e.requests {
		limits = append(limits, req.Params.MaxTokens)
	}
	if diff := cmp.Diff([]int{2, 2, 2, 128}, limits); diff != "" {
		t.Error(diff)
	}
}

// send posts a body and returns the whole answer.
func send(ctx context.Context, client *http.Client, url, body string) string {
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

func TestAbortRequest(t *testing.T) {
	for name, body := range map[string]string{
		"whole":  `{"text":"hi","rid":"victim"}`,
		"stream": `{"text":"hi","rid":"victim","stream":true}`,
		"batch":  `{"text":["hi","ho"],"rid":"victim","stream":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			e := newFake(token("a", 1), token("b", 2), token("c", 3), atEOS(3)) // more than the steps below
			e.step = make(chan struct{})
			url, client := listen(t, newServer(t, e, Config{}))
			want := int32(1 + strings.Count(body, `"ho"`))
			answered := make(chan string, 1)
			go func() { answered <- send(context.Background(), client, url+"/generate", body) }()
			eventually(t, "the request runs", func() bool { return e.live.Load() == want })
			for range want {
				e.step <- struct{}{}
			}
			send(t.Context(), client, url+"/abort_request", `{"rid":"another"}`)
			send(t.Context(), client, url+"/abort_request", `{"rid":"victim"}`)
			if got := <-answered; int32(strings.Count(got, `"finish_reason":{"type":"abort","message":"aborted on request"}`)) != want {
				t.Errorf("got %s", got)
			}
			eventually(t, "the request is aborted", func() bool { return e.live.Load() == 0 })
		})
	}
}

func TestBatchDisconnectAborts(t *testing.T) {
	e := newFake(token("a", 1), token("b", 2), atEOS(2))
	e.step = make(chan struct{})
	s := newServer(t, e, Config{})
	url, client := listen(t, s)
	for _, stream := range []string{"true", "false"} {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan string, 1)
		go func() { answered <- send(ctx, client, url+"/generate", `{"text":["a","b","c"],"stream":`+stream+`}`) }()
		eventually(t, "the requests run", func() bool { return e.live.Load() == 3 })
		e.step <- struct{}{}
		cancel()
		<-answered
		eventually(t, "the requests are aborted", func() bool { return e.live.Load() == 0 && s.live.Load() == 0 })
	}
}

func TestInfoAndTools(t *testing.T) {
	e := newFake(token("a", 1))
	s := newServer(t, e, Config{MaxRunning: 8, Version: "v", ModelName: "served", ToolCallParser: "qwen"})
	tests := []struct{ method, path, body, want string }{
		{"GET", "/server_info", "", `{"model_path":"/models/fake","tokenizer_path":"/models/fake","served_model_name":"served","dtype":"float32","device":"none",` +
			`"context_length":64,"page_size":4,"max_running_requests":8,"max_total_num_tokens":400,"max_req_input_len":63,"status":"ok","version":"v","tool_call_parser":"qwen","reasoning_parser":null,"speculative_algorithm":null,"speculative_num_draft_tokens":null,` +
			`"internal_states":[{"effective_max_running_requests_per_dp":8,"memory_usage":{"token_capacity":400},"last_gen_throughput":0,"num_running_reqs":0,"num_queue_reqs":0,"jump_forward_tokens":9}]}`},
		{"GET", "/get_model_info", "", `{"model_path":"/models/fake","tokenizer_path":"/models/fake","is_generation":true,"preferred_sampling_params":null,"weight_version":"default","architectures":["FakeForCausalLM"]}`},
		{"GET", "/flush_cache", "", "Cache flushed: 25 pages are free again.\n"},
		{"POST", "/flush_cache?timeout=60.0", "", "Cache flushed: 25 pages are free again.\n"},
		{"POST", "/reset_prefix_cache", "", "Cache flushed: 25 pages are free again.\n"},
		{"GET", "/health_generate", "", `{"status":"ok"}`},
		{"POST", "/tokenize", `{"prompt":"ab"}`, `{"tokens":[97,98],"count":2,"max_model_len":64}`},
		{"POST", "/tokenize", `{"prompt":["ab",""]}`, `{"tokens":[[97,98],[]],"count":[2,0],"max_model_len":64}`},
		{"POST", "/detokenize", `{"tokens":[97,98]}`, `{"text":"ab"}`},
		{"POST", "/detokenize", `{"tokens":[[97],[98]]}`, `{"text":["a","b"]}`},
		{"POST", "/abort_request", `{"rid":"nobody"}`, ""},
	}
	for _, test := range tests {
		if w := do(s, test.method, test.path, test.body); w.Code != http.StatusOK || w.Body.String() != test.want {
			t.Errorf("%s %s: got %d %s", test.method, test.path, w.Code, w.Body)
		}
	}
	a, b := do(s, "GET", "/server_info", ""), do(s, "GET", "/get_server_info", "")
	if a.Body.String() != b.Body.String() {
		t.Errorf("%s differs from %s", a.Body, b.Body)
	}
	e.flushErr = llm.ErrClosed
	if w := do(s, "POST", "/flush_cache", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("flushing a closed engine: got %d", w.Code)
	}
}

func TestHealthGenerateFailures(t *testing.T) {
	for _, script := range [][]llm.Event{nil, {{Finish: llm.FinishAbort}}, {{Finish: llm.FinishError, Err: errors.New("out of luck")}}} {
		e := newFake(script...)
		s := newServer(t, e, Config{})
		if w := do(s, "GET", "/health_generate", ""); w.Code < 500 {
			t.Errorf("%v: got %d %s", script, w.Code, w.Body)
		}
		if n := e.live.Load(); n != 0 {
			t.Errorf("%d requests left", n)
		}
	}
}

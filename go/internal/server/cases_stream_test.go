package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// TestA01_SplitCharacters: random bytes are torn characters more often than not;
// every event is valid UTF-8, and together they are one decoding of all ids.
func TestA01_SplitCharacters(t *testing.T) {
	s, l := caseServer(t, Config{})
	ids, err := l.EncodeChat([]tokenizer.Message{{Role: "user", Content: "hi"}}, tokenizer.TemplateOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	torn := 0
	for seed := range uint64(5) {
		params := llm.DefaultSampling()
		params.Temperature, params.MaxTokens, params.IgnoreEOS, params.Seed = 1.5, 60, true, &seed
		outs, err := l.Generate(t.Context(), []llm.Request{{TokenIDs: ids, Params: params}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := l.Tokenizer().Decode(outs[0].TokenIDs, true)
		if err != nil {
			t.Fatal(err)
		}
		torn += strings.Count(want, "\ufffd")
		chunks := chunksOf(t, s, chatPath, fmt.Sprintf(`{"stream":true,"temperature":1.5,"max_tokens":60,"ignore_eos":true,"seed":%d,%s}`, seed, hi))
		got, events := contentOf(chunks)
		if got != want || !utf8.ValidString(got) || events < 60 {
			t.Errorf("seed %d: %d events give %q, one decoding gives %q", seed, events, got, want)
		}
	}
	if torn == 0 {
		t.Error("no answer holds a torn character, so nothing was tested")
	}
}

// TestA02_UsageChunk: exactly one chunk of usage, and only if it was asked for.
func TestA02_UsageChunk(t *testing.T) {
	s, _ := caseServer(t, Config{})
	const body = `"temperature":0,"max_tokens":4,"ignore_eos":true,` + hi + `}`
	total := answered(t, s, chatPath, `{`+body).Usage
	for options, want := range map[string]int{
		`"stream_options":{"include_usage":true},`: 1, `"stream_options":{},`: 0, `"stream_options":{"include_usage":false},`: 0, `"stream_options":null,`: 0, ``: 0,
	} {
		chunks := chunksOf(t, s, chatPath, `{"stream":true,`+options+body)
		n := 0
		for i, chunk := range chunks {
			usage, told := chunk["usage"]
			if told != (want == 1) {
				t.Errorf("%s chunk %d: usage is there: %v", options, i, told)
			}
			if usage == nil {
				continue
			}
			n++
			u := usage.(map[string]any)
			got := []int{int(u["prompt_tokens"].(float64)), int(u["completion_tokens"].(float64)), int(u["total_tokens"].(float64))}
			if diff := cmp.Diff([]int{total.Prompt, 4, total.Prompt + 4}, got); diff != "" || len(chunk["choices"].([]any)) != 0 || i != len(chunks)-1 {
				t.Errorf("%s chunk %d of %d: %v %s", options, i, len(chunks), chunk, diff)
			}
		}
		if n != want {
			t.Errorf("%s: %d chunks with usage, want %d", options, n, want)
		}
	}
	answered(t, s, chatPath, `{"stream_options":{"include_usage":true},`+body) // without a stream it is ignored
}

// TestA03_ChunkShape: object, role and finish_reason are where OpenAI has them.
func TestA03_ChunkShape(t *testing.T) {
	s, l := caseServer(t, Config{})
	eos, _ := l.Tokenizer().EOS()
	for reason, extra := range map[string]string{"length": `"ignore_eos":true`, "stop": fmt.Sprintf(`"min_tokens":2,"logit_bias":{"%d":100}`, eos)} {
		chunks := chunksOf(t, s, chatPath, `{"stream":true,"model":"m","max_tokens":3,`+extra+`,`+hi+`}`)
		first := chunks[0]
		if role := choiceOf(first)["delta"].(map[string]any)["role"]; role != "assistant" || first["object"] != "chat.completion.chunk" {
			t.Errorf("%s: the first chunk is %v", reason, first)
		}
		for i, chunk := range chunks {
			c := choiceOf(chunk)
			finish, told := c["finish_reason"]
			last := i == len(chunks)-1
			if !told || !last && finish != nil || last && finish != reason {
				t.Errorf("%s: chunk %d of %d has finish_reason %v", reason, i, len(chunks), finish)
			}
			for _, field := range []string{"id", "object", "created", "model"} {
				if chunk[field] != first[field] {
					t.Errorf("%s: chunk %d has the %s %v, the first %v", reason, i, field, chunk[field], first[field])
				}
			}
		}
	}
}

// TestA04_StopAcrossTokens: the text ends right before a stop string, wherever
// tokens end; what was held back comes when the match fails.
func TestA04_StopAcrossTokens(t *testing.T) {
	s, _ := caseServer(t, Config{})
	body := `"temperature":1,"seed":3,"max_tokens":40,` + letters() + `,` + hi + `}`
	full := answered(t, s, chatPath, `{`+body).Choices[0].Message.Content
	if len(full) != 40 {
		t.Fatalf("the answer is %q", full)
	}
	before := func(stop string) string {
		text, _, _ := strings.Cut(full, stop)
		return text
	}
	for _, test := range []struct{ stop, want string }{
		{full[10:17], before(full[10:17])},
		{full[10:12], before(full[10:12])},
		{full[10:16] + "#", full},
		{full[38:] + "x", full},
	} {
		finish := "length"
		if test.want != full {
			finish = "stop"
		}
		members := `{"stop":["` + test.stop + `"],` + body
		got := answered(t, s, chatPath, members).Choices[0]
		chunks := chunksOf(t, s, chatPath, `{"stream":true,`+members[1:])
		text, _ := contentOf(chunks)
		if got.Message.Content != test.want || got.FinishReason != finish || text != test.want || choiceOf(chunks[len(chunks)-1])["finish_reason"] != finish {
			t.Errorf("stop %q: %q (%s), streamed %q, want %q (%s)", test.stop, got.Message.Content, got.FinishReason, text, test.want, finish)
		}
	}
	alive(t, s)
}

// TestA05_OneEventPerToken: clients that count events count tokens.
func TestA05_OneEventPerToken(t *testing.T) {
	s, _ := caseServer(t, Config{})
	for _, n := range []int{1, 2, 256} {
		chunks := chunksOf(t, s, chatPath, fmt.Sprintf(`{"stream":true,"max_tokens":%d,"ignore_eos":true,"temperature":1.5,%s}`, n, hi))
		if _, events := contentOf(chunks[:n]); events != n || len(chunks) != n+1 {
			t.Errorf("%d tokens: %d events with content, then %d more", n, events, len(chunks)-n)
		}
	}
}

// TestA06_ErrorInStream: a failure is an error object in the stream, and never a
// finish_reason; before the first event it is a status.
func TestA06_ErrorInStream(t *testing.T) {
	s, l := caseServer(t, Config{})
	for _, after := range []int{0, 3} {
		batches := 0
		err := l.SetForwardHook(func(_ llm.BatchInfo, forward func() error) error {
			if batches++; batches > after {
				return errors.New("the device is on fire")
			}
			return forward()
		})
		if err != nil {
			t.Fatal(err)
		}
		w := do(s, "POST", chatPath, `{"stream":true,"max_tokens":9,"ignore_eos":true,`+hi+`}`)
		body := w.Body.String()
		if after == 0 {
			checkFailure(t, w.Code, w.Header(), body, 500, nil, nil, "on fire")
			continue
		}
		events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
		if len(events) != 4 || !strings.HasPrefix(events[3], `data: {"error":{"message":`) || strings.Contains(body, "[DONE]") || strings.Contains(body, `"finish_reason":"`) {
			t.Errorf("got %s", body)
		}
	}
	if err := l.SetForwardHook(nil); err != nil {
		t.Fatal(err)
	}
	alive(t, s)
}

// TestA07_ClientGoesAway: in a stream, in a whole answer, in a long prompt and in
// the queue, the request leaves the engine with its client.
func TestA07_ClientGoesAway(t *testing.T) {
	l, err := llm.New(t.Context(), llm.Config{
		Model: tinyModel, DType: "float32", NumPageOverride: 4096, MaxRunningReq: 1, MaxExtendTokens: 16, Logger: discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	slow(t, l, 2*time.Millisecond)
	s := newServer(t, nil, Config{})
	s.SetEngine(LLM{LLM: l})
	url, client := listen(t, s)
	for name, body := range map[string]string{
		"stream":  `{"stream":true,"max_tokens":400,"ignore_eos":true,` + hi + `}`,
		"whole":   `{"max_tokens":400,"ignore_eos":true,` + hi + `}`,
		"prefill": `{"prompt":"` + strings.Repeat("long ", 80) + `"}`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan string)
		for range 2 { // the second waits in the queue
			go func() { ended <- send(ctx, client, url+chatPath, body) }()
		}
		eventually(t, name+": one runs and one waits", func() bool { st := l.Stats(); return st.Running == 1 && st.Waiting == 1 })
		cancel()
		<-ended
		<-ended
		clean(t, s)
	}
	if got := l.Stats().AbortedReqs; got != 6 {
		t.Errorf("%d requests were aborted, want 6", got)
	}
}

// TestA08_Framing: an answer is JSON unless a stream was asked for, and no text of
// mini-sglang's form forges or hides an event.
func TestA08_Framing(t *testing.T) {
	s, _ := caseServer(t, Config{})
	w := do(s, "POST", chatPath, `{"max_tokens":8,`+hi+`}`)
	if w.Header().Get("Content-Type") != "application/json" || within(t, w.Body.String(), "object") != "chat.completion" {
		t.Errorf("got %s: %s", w.Header().Get("Content-Type"), w.Body)
	}
	forged := "a\n\ndata: [DONE]\n\ndata: b\r\rc"
	fake := newServer(t, newFake(token(forged, 1), token("", 2), atEOS(2)), Config{})
	events := streamed(t, do(fake, "POST", "/generate", `{"prompt":"x","max_tokens":3}`).Body.String())
	if len(events) != 2 || strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(forged) != events[0] {
		t.Errorf("got %d events: %q", len(events), events)
	}
}

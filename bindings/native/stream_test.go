package native

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const someParams = `"params":{"temperature":0,"top_k":-1,"top_p":1,"min_p":0,"repetition_penalty":1,"max_tokens":%d,"ignore_eos":true}`

func openBox(t *testing.T) int64 {
	t.Helper()
	box, err := OpenMailbox()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := CloseMailbox(box); err != nil {
			t.Error(err)
		}
	})
	return box
}

// startOne streams maxTokens tokens after a prompt.
func startOne(t *testing.T, engine, box int64, prompt string, maxTokens int) int64 {
	t.Helper()
	id, err := StartStream(engine, box, fmt.Sprintf(`{"name":"prompt",%s,`+someParams+`}`, prompt, maxTokens))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// events takes events until so many streams and jobs have ended.
func events(t *testing.T, box int64, ends int) []event {
	t.Helper()
	var all []event
	for range 1000 {
		text, err := NextEvents(box, 20)
		if err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		var some []event
		if err := json.Unmarshal([]byte(text), &some); err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
		ended := 0
		for _, ev := range all {
			if ev.FinishReason != "" || ev.Error != nil || ev.Job != 0 {
				ended++
			}
		}
		if ended >= ends {
			return all
		}
	}
	t.Fatalf("the streams do not end; %d events came", len(all))
	return nil
}

func streamed(all []event, stream int64) (tokens []int32) {
	for _, ev := range all {
		if ev.Stream == stream && ev.TokenID != nil {
			tokens = append(tokens, *ev.TokenID)
		}
	}
	return tokens
}

func TestStreamsShareAMailbox(t *testing.T) {
	engine, box := openTiny(t), openBox(t)
	job, err := Generate(engine, twoPrompts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Watch(job, box); err != nil {
		t.Fatal(err)
	}
	first := startOne(t, engine, box, `"token_ids":[1,2,3]`, 4)
	second := startOne(t, engine, box, `"token_ids":[4,5]`, 3)
	all := events(t, box, 3)
	text, err := Result(job)
	if err != nil {
		t.Fatal(err)
	}
	var outs []output
	if err := json.Unmarshal([]byte(text), &outs); err != nil {
		t.Fatal(err)
	}
	for i, id := range []int64{first, second} {
		if got := streamed(all, id); !slices.Equal(got, outs[i].TokenIDs) {
			t.Errorf("stream %d gave %v, Generate %v", i, got, outs[i].TokenIDs)
		}
	}
	for _, ev := range all {
		if ev.FinishReason != "" && (ev.FinishReason != "length" || ev.PromptTokens == 0 || ev.CompletionTokens < 3) {
			t.Errorf("last event %+v", ev)
		}
	}
	if !slices.ContainsFunc(all, func(ev event) bool { return ev.Job == job }) {
		t.Error("no event tells of the job's end")
	}
	waitForNoStreams(t)
}

func TestOutputsTellWhatATextWasEncodedTo(t *testing.T) {
	engine := openTiny(t)
	for _, tc := range []struct{ prompt, want string }{
		{`"text":"ab"`, `"prompt_token_ids":[`},
		{`"messages":[{"role":"user","content":"a"}]`, `"prompt_token_ids":[`},
		{`"token_ids":[1,2]`, `"prompt_token_ids":null`},
	} {
		job, err := Generate(engine, fmt.Sprintf(`[{%s,`+someParams+`}]`, tc.prompt, 1))
		if err != nil {
			t.Fatal(err)
		}
		finish(t, job)
		text, err := Result(job)
		if err != nil || !strings.Contains(text, tc.want) {
			t.Errorf("%s: got %s, %v; want %s", tc.prompt, text, err, tc.want)
		}
	}
}

func TestABadRequestEndsItsStream(t *testing.T) {
	engine, box := openTiny(t), openBox(t)
	id := startOne(t, engine, box, `"token_ids":[100000]`, 4)
	all := events(t, box, 1)
	if ev := all[0]; len(all) != 1 || ev.Stream != id || ev.Error == nil || ev.Error.Kind != kindInvalid || ev.Error.Field != "prompt" {
		t.Errorf("got %+v", all)
	}
	if _, err := StartStream(engine, box, `{"prompt":"a"}`); kindOf(t, err).Kind != kindType {
		t.Errorf("got %v", err)
	}
	waitForNoStreams(t)
}

func TestCancelledStreamsEnd(t *testing.T) {
	engine, box := openTiny(t), openBox(t)
	id := startOne(t, engine, box, `"token_ids":[1]`, 500)
	if _, err := CancelStream(id); err != nil {
		t.Fatal(err)
	}
	all := events(t, box, 1)
	if last := all[len(all)-1]; last.FinishReason != "abort" && (last.Error == nil || last.Error.Kind != kindCanceled) {
		t.Errorf("the last event is %+v", last)
	}
	for range 3 {
		startOne(t, engine, box, `"token_ids":[1]`, 500)
	}
	if _, err := CloseMailbox(box); err != nil {
		t.Fatal(err)
	}
	waitForNoStreams(t)
	if _, err := NextEvents(box, 0); kindOf(t, err).Kind != kindClosed {
		t.Errorf("got %v", err)
	}
	if _, err := StartStream(engine, box, `{}`); kindOf(t, err).Kind != kindClosed {
		t.Errorf("got %v", err)
	}
}

func TestClosingTheEngineEndsItsStreams(t *testing.T) {
	engine, box := openTiny(t), openBox(t)
	startOne(t, engine, box, `"token_ids":[1]`, 500)
	if _, err := CloseEngine(engine); err != nil {
		t.Fatal(err)
	}
	events(t, box, 1)
	waitForNoStreams(t)
}

func waitForNoStreams(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for streams.len() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are left", streams.len())
		}
		time.Sleep(time.Millisecond)
	}
}

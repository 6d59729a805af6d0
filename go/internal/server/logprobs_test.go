package server

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// scored is an event whose token stands for one byte and has a log-probability.
func scored(b byte, p float32, n int, top ...llm.Logprob) llm.Event {
	ev := token(string(rune(b)), n)
	ev.Token = int32(b)
	ev.Logprob = &llm.TokenLogprob{Token: int32(b), Logprob: p, Top: top}
	return ev
}

// scoredScript is a prompt "hi", then "A", half a character, and the end.
func scoredScript() []llm.Event {
	first := scored('A', -0.5, 1, llm.Logprob{Token: 'A', Logprob: -0.5}, llm.Logprob{Token: 0xe2, Logprob: float32(math.Inf(-1))})
	first.PromptLogprob = []llm.TokenLogprob{{Token: 'i', Logprob: -2, Top: []llm.Logprob{{Token: 'o', Logprob: -1}, {Token: 'i', Logprob: -2}}}}
	return []llm.Event{first, scored(0xe2, -3, 2, llm.Logprob{Token: 'B', Logprob: -1}, llm.Logprob{Token: 'C', Logprob: -2}), finished(atEOS(2), llm.FinishLength)}
}

// within returns what lies at a path of a JSON document.
func within(t *testing.T, doc string, path ...any) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v
}

// fromJSON is the value of a JSON text.
func fromJSON(t *testing.T, text string) any { return within(t, text) }

const (
	chatA  = `{"token":"A","bytes":[65],"logprob":-0.5,"top_logprobs":[{"token":"A","bytes":[65],"logprob":-0.5},{"token":"�","bytes":[226],"logprob":-9999}]}`
	chatE2 = `{"token":"�","bytes":[226],"logprob":-3,"top_logprobs":[{"token":"B","bytes":[66],"logprob":-1},{"token":"C","bytes":[67],"logprob":-2}]}`
)

func TestChatLogprobs(t *testing.T) {
	s := newServer(t, newFake(scoredScript()...), Config{})
	w := do(s, "POST", chatPath, `{"logprobs":true,"top_logprobs":2,`+hi+`}`)
	want := fromJSON(t, `{"content":[`+chatA+`,`+chatE2+`],"refusal":null}`)
	if diff := cmp.Diff(want, within(t, w.Body.String(), "choices", 0, "logprobs")); diff != "" {
		t.Error(diff)
	}
	w = do(s, "POST", chatPath, `{"stream":true,"logprobs":true,"top_logprobs":2,`+hi+`}`)
	var content []any
	for _, data := range streamed(t, w.Body.String()) {
		if l, ok := within(t, data, "choices", 0, "logprobs").(map[string]any); ok {
			content = append(content, l["content"].([]any)...)
		}
	}
	if diff := cmp.Diff(want.(map[string]any)["content"], any(content)); diff != "" {
		t.Error("streamed:", diff)
	}
	w = do(s, "POST", chatPath, `{`+hi+`}`)
	if got := within(t, w.Body.String(), "choices", 0, "logprobs"); got != nil {
		t.Errorf("log-probabilities that nobody asked for: %v", got)
	}
}

func TestCompletionLogprobs(t *testing.T) {
	s := newServer(t, newFake(scoredScript()...), Config{})
	for name, test := range map[string]struct{ body, want string }{
		"echo": {`"echo":true,"logprobs":2`, `{"tokens":["h","i","A","bytes:\\xe2"],"token_logprobs":[null,-2,-0.5,-3],
			"top_logprobs":[null,{"o":-1,"i":-2},{"A":-0.5,"bytes:\\xe2":-9999},{"bytes:\\xe2":-3,"B":-1,"C":-2}],"text_offset":[0,1,2,3]}`},
		"none": {`"echo":true`, `null`},
	} {
		w := do(s, "POST", completionsPath, `{"prompt":"hi",`+test.body+`}`)
		want := fromJSON(t, test.want)
		if diff := cmp.Diff(want, within(t, w.Body.String(), "choices", 0, "logprobs")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		w = do(s, "POST", completionsPath, `{"prompt":"hi","stream":true,`+test.body+`}`)
		columns := map[string]any{}
		for _, data := range streamed(t, w.Body.String()) {
			l, _ := within(t, data, "choices", 0, "logprobs").(map[string]any)
			for column, values := range l {
				before, _ := columns[column].([]any)
				columns[column] = append(before, values.([]any)...)
			}
		}
		if want == nil {
			want = map[string]any{}
		}
		if diff := cmp.Diff(want, any(columns)); diff != "" {
			t.Errorf("%s, streamed: %s", name, diff)
		}
	}
	plain := []llm.Event{scored('A', -0.5, 1), atEOS(1)}
	w := do(newServer(t, newFake(plain...), Config{}), "POST", completionsPath, `{"prompt":"hi","logprobs":0}`)
	want := fromJSON(t, `{"tokens":["A"],"token_logprobs":[-0.5],"top_logprobs":null,"text_offset":[0]}`)
	if diff := cmp.Diff(want, within(t, w.Body.String(), "choices", 0, "logprobs")); diff != "" {
		t.Error(diff)
	}
}

func TestNativeLogprobs(t *testing.T) {
	for name, test := range map[string]struct{ body, input, output, inputTop, outputTop string }{
		"all":         {`"logprob_start_len":0,"top_logprobs_num":2,"return_text_in_logprobs":true`, `[[null,104,"h"],[-2,105,"i"]]`, `[[-0.5,65,"A"],[-3,226,"�"]]`, `[null,[[-1,111,"o"],[-2,105,"i"]]]`, `[[[-0.5,65,"A"],[-9999,226,"�"]],[[-1,66,"B"],[-2,67,"C"]]]`},
		"output only": {`"logprob_start_len":-1`, `[[null,105,null]]`, `[[-0.5,65,null],[-3,226,null]]`, `null`, `null`},
	} {
		script := scoredScript()
		if name == "output only" {
			script[0].PromptLogprob = nil
		}
		s := newServer(t, newFake(script...), Config{})
		w := do(s, "POST", "/generate", `{"text":"hi","return_logprob":true,`+test.body+`}`)
		stream := streamed(t, do(s, "POST", "/generate", `{"stream":true,"text":"hi","return_logprob":true,`+test.body+`}`).Body.String())
		for _, doc := range []string{w.Body.String(), stream[len(stream)-1]} {
			meta := within(t, doc, "meta_info").(map[string]any)
			for field, want := range map[string]string{
				"input_token_logprobs": test.input, "output_token_logprobs": test.output,
				"input_top_logprobs": test.inputTop, "output_top_logprobs": test.outputTop,
			} {
				if diff := cmp.Diff(fromJSON(t, want), meta[field]); diff != "" {
					t.Errorf("%s: %s: %s", name, field, diff)
				}
			}
		}
	}
	w := do(newServer(t, newFake(), Config{}), "POST", "/generate", `{"text":"hi","return_logprob":true,"logprob_start_len":2}`)
	if w.Code != 400 || !strings.Contains(w.Body.String(), `"param":"logprob_start_len"`) {
		t.Errorf("a start behind the prompt: %d %s", w.Code, w.Body)
	}
}

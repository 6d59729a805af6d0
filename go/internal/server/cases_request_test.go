package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// TestA09_MaxTokens: null is the default, what is no count is refused by name,
// and what is too much is what fits.
func TestA09_MaxTokens(t *testing.T) {
	s, _ := caseServer(t, Config{})
	for _, path := range []string{chatPath, completionsPath} {
		prompt := hi
		if path == completionsPath {
			prompt = `"prompt":"hi"`
		}
		for value, want := range map[string]int{"1": 1, "3.0": 3, "2147483648": 0, "9223372036854775807": 0, "null": 0} {
			got := answered(t, s, path, `{"temperature":0,"ignore_eos":true,"max_tokens":`+value+`,`+prompt+`}`)
			switch {
			case want > 0 && got.Usage.Completion != want:
				t.Errorf("%s: max_tokens %s gave %d tokens", path, value, got.Usage.Completion)
			case value == "null" && path == completionsPath && got.Usage.Completion != 16:
				t.Errorf("%s: the default gave %d tokens", path, got.Usage.Completion)
			case want == 0 && (value != "null" || path == chatPath) && got.Usage.Total != 512:
				t.Errorf("%s: max_tokens %s gave %d tokens in all, not the context's 512", path, value, got.Usage.Total)
			}
			if got.Choices[0].FinishReason != "length" {
				t.Errorf("%s: max_tokens %s: finish_reason %q", path, value, got.Choices[0].FinishReason)
			}
		}
		for _, value := range []string{"0", "-1", `"16"`, "true", "1.5", "[]"} {
			refused(t, s, path, `{"max_tokens":`+value+`,`+prompt+`}`, "max_tokens")
		}
	}
	alive(t, s)
}

// TestA10_ContextLimit: a prompt of the limit or more is refused with both numbers
// at once; one that fits gets what room there is.
func TestA10_ContextLimit(t *testing.T) {
	l, err := llm.New(t.Context(), llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 1024, MaxSeqLenOverride: 64, Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newServer(t, nil, Config{})
	s.SetEngine(LLM{LLM: l})
	for _, stream := range []string{"false", "true"} {
		for _, most := range []int{1, 500} {
			for _, n := range []int{62, 63, 64, 65, 500} {
				ids := strings.TrimSuffix(strings.Repeat("7,", n), ",")
				body := fmt.Sprintf(`{"prompt":[%s],"max_tokens":%d,"ignore_eos":true,"stream":%s}`, ids, most, stream)
				if n >= 64 {
					w := do(s, "POST", completionsPath, body)
					checkFailure(t, w.Code, w.Header(), w.Body.String(), 400, "prompt", "context_length_exceeded", fmt.Sprintf("%d tokens", n))
					if !strings.Contains(w.Body.String(), "at most 64") {
						t.Errorf("the limit is not told: %s", w.Body)
					}
					continue
				}
				if stream == "true" {
					if chunks := chunksOf(t, s, completionsPath, body); len(chunks) != min(most, 64-n)+1 {
						t.Errorf("%d tokens and %d more: %d chunks", n, most, len(chunks))
					}
					continue
				}
				if got := answered(t, s, completionsPath, body); got.Usage.Completion != min(most, 64-n) || got.Choices[0].FinishReason != "length" {
					t.Errorf("%d tokens and %d more: %+v", n, most, got)
				}
			}
		}
	}
	alive(t, s)
}

// TestA11_EmptyPrompt: it is refused while others run on untouched.
func TestA11_EmptyPrompt(t *testing.T) {
	s, _ := caseServer(t, Config{})
	body := `{"stream":true,"temperature":0,"max_tokens":200,` + letters() + `,` + hi + `}`
	want, _ := contentOf(chunksOf(t, s, chatPath, body))
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			if got, _ := contentOf(chunksOf(t, s, chatPath, body)); got != want {
				t.Errorf("a stream gave %q, want %q", got, want)
			}
		})
	}
	for _, prompt := range []string{`"prompt":""`, `"prompt":[]`} {
		refused(t, s, completionsPath, `{`+prompt+`}`, "prompt")
	}
	for _, prompt := range []string{`"prompt":[""]`, `"prompt":[[]]`} {
		refused(t, s, completionsPath, `{`+prompt+`}`, "prompt[0]")
	}
	refused(t, s, completionsPath, `{}`, "prompt")
	others.Wait()
	alive(t, s)
}

// TestA12_Messages: parts are joined, null is for calls of tools alone, and what
// is wrong is named by its path.
func TestA12_Messages(t *testing.T) {
	s, _ := caseServer(t, Config{})
	joined := answered(t, s, chatPath, `{"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":"ab"}]}`)
	parts := answered(t, s, chatPath, `{"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`)
	if diff := cmp.Diff(joined, parts); diff != "" {
		t.Errorf("parts are not one text: %s", diff)
	}
	answered(t, s, chatPath, `{"max_tokens":2,"messages":[{"role":"developer","content":"d"},{"role":"user","content":"u"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":"4"}]}`)
	for messages, param := range map[string]string{
		`[]`:                                "messages",
		`[{"role":"user","content":[]}]`:    "messages[0].content",
		`[{"role":"user"}]`:                 "messages[0].content",
		`[{"role":"user","content":null}]`:  "messages[0].content",
		`[{"role":"wizard","content":"x"}]`: "messages[0].role",
		`[{"content":"x"}]`:                 "messages[0].role",
		`[{"role":"user","content":"a"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`: "messages[1].content[0].type",
		`"hi"`: "messages",
	} {
		refused(t, s, chatPath, `{"messages":`+messages+`}`, param)
	}
	alive(t, s)
}

// TestA13_FormsOfStop: a string, a list and null work, up to 16 strings of them.
func TestA13_FormsOfStop(t *testing.T) {
	s, _ := caseServer(t, Config{})
	for _, stop := range []string{`"x"`, `["x","y"]`, `null`, `[]`, `["a","b","c","d","e"]`} {
		if got := answered(t, s, chatPath, `{"temperature":0,"max_tokens":3,"logit_bias":{"113":100},"stop":`+stop+`,`+hi+`}`); got.Choices[0].Message.Content != "qqq" {
			t.Errorf("stop %s: %+v", stop, got)
		}
	}
	for stop, param := range map[string]string{`""`: "stop", `["ok",""]`: "stop[1]", `[1]`: "stop[0]", `7`: "stop"} {
		refused(t, s, chatPath, `{"stop":`+stop+`,`+hi+`}`, param)
	}
	alive(t, s)
}

// TestA14_NumbersOutOfRange: nothing that is no number, or out of range, comes
// through; what is nearly zero is greedy.
func TestA14_NumbersOutOfRange(t *testing.T) {
	s, _ := caseServer(t, Config{})
	for _, value := range []string{"NaN", "Infinity", "-Infinity"} { // no JSON at all
		refused(t, s, chatPath, `{"temperature":`+value+`,`+hi+`}`, "")
	}
	for member, param := range map[string]string{
		`"temperature":1e400`: "temperature", `"temperature":-0.1`: "temperature", `"top_p":0`: "top_p", `"top_p":1.0001`: "top_p",
		`"top_p":-1`: "top_p", `"top_k":-2`: "top_k", `"min_p":1`: "min_p", `"presence_penalty":1e999`: "presence_penalty",
	} {
		refused(t, s, chatPath, `{`+member+`,`+hi+`}`, param)
	}
	greedy := answered(t, s, chatPath, `{"temperature":0,"max_tokens":20,`+hi+`}`)
	if diff := cmp.Diff(greedy, answered(t, s, chatPath, `{"temperature":1e-12,"max_tokens":20,`+hi+`}`)); diff != "" {
		t.Errorf("a temperature of 1e-12 is not greedy: %s", diff)
	}
	all := answered(t, s, chatPath, `{"temperature":2.5,"seed":1,"max_tokens":20,`+hi+`}`)
	for _, off := range []string{"0", "-1", "1000000000"} {
		if diff := cmp.Diff(all, answered(t, s, chatPath, `{"temperature":2.5,"seed":1,"max_tokens":20,"top_k":`+off+`,`+hi+`}`)); diff != "" {
			t.Errorf("top_k %s is not off: %s", off, diff)
		}
	}
	alive(t, s)
}

// TestA15_Stable: greedy and seeded answers are the same alone, in company, and
// later.
func TestA15_Stable(t *testing.T) {
	s, _ := caseServer(t, Config{})
	cold, seeded := `{"temperature":0,"top_p":0.5,"max_tokens":24,`+hi+`}`, `{"temperature":1,"seed":7,"max_tokens":24,`+hi+`}`
	wantCold, wantSeeded := answered(t, s, chatPath, cold), answered(t, s, chatPath, seeded)
	var others sync.WaitGroup
	for i := range 32 {
		others.Go(func() {
			answered(t, s, chatPath, fmt.Sprintf(`{"temperature":1.2,"max_tokens":%d,"ignore_eos":true,"prompt":"%s"}`, 10+i, strings.Repeat("x", 1+3*i)))
		})
	}
	for range 3 {
		if diff := cmp.Diff(wantCold, answered(t, s, chatPath, cold)); diff != "" {
			t.Errorf("greedy: %s", diff)
		}
		if diff := cmp.Diff(wantSeeded, answered(t, s, chatPath, seeded)); diff != "" {
			t.Errorf("seeded: %s", diff)
		}
	}
	others.Wait()
	for seed, ok := range map[string]bool{"0": true, "18446744073709551615": true, "-1": false, "18446744073709551616": false, "1.5": false} {
		body := `{"seed":` + seed + `,"max_tokens":2,` + hi + `}`
		if ok {
			answered(t, s, chatPath, body)
		} else {
			refused(t, s, chatPath, body, "seed")
		}
	}
	alive(t, s)
}

// TestA16_BrokenText: lone surrogates and bytes that are no UTF-8 are U+FFFD on
// every route; what is no JSON document is refused.
func TestA16_BrokenText(t *testing.T) {
	s, _ := caseServer(t, Config{})
	for path, body := range map[string]string{
		completionsPath: `{"temperature":0,"max_tokens":4,"prompt":"a%sb"}`,
		chatPath:        `{"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":"a%sb"}]}`,
		"/generate":     `{"sampling_params":{"temperature":0,"max_new_tokens":4},"rid":"r","text":"a%sb"}`,
		"/tokenize":     `{"prompt":"a%sb"}`,
	} {
		strip := func(text string) string { // times, and what the cache knows
			w := do(s, "POST", path, fmt.Sprintf(body, text))
			if w.Code != http.StatusOK {
				t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
			}
			doc := within(t, w.Body.String()).(map[string]any)
			for _, field := range []string{"created", "usage", "meta_info"} {
				delete(doc, field)
			}
			return fmt.Sprint(doc)
		}
		want := strip("\ufffd")
		for _, text := range []string{`\ud800`, "\xff"} {
			if got := strip(text); got != want {
				t.Errorf("%s: %q is not U+FFFD: %s, want %s", path, text, got, want)
			}
		}
		for _, broken := range []string{body[:len(body)/2], body + body, "\ufeff" + body, ""} {
			if w := do(s, "POST", path, broken); w.Code != http.StatusBadRequest || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: %.40q: status %d: %s", path, broken, w.Code, w.Body)
			}
		}
	}
	alive(t, s)
}

// TestA17_DeepAndLarge: depth and size are bounded, wherever they are.
func TestA17_DeepAndLarge(t *testing.T) {
	s, _ := caseServer(t, Config{MaxBody: 4 << 20})
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	answered(t, s, chatPath, `{"max_tokens":1,"zz":`+nested(50)+`,`+hi+`}`)
	for _, n := range []int{9000, 10001, 1000000} {
		refused(t, s, chatPath, `{"zz":`+nested(n)+`,`+hi+`}`, "")
		refused(t, s, chatPath, `{"tools":[{"type":"function","function":{"name":"f","parameters":`+nested(n)+`}}],`+hi+`}`, "")
	}
	if w := do(s, "POST", chatPath, `{"zz":"`+strings.Repeat("x", 5<<20)+`",`+hi+`}`); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 5 MB where 4 are allowed: status %d", w.Code)
	}
	refused(t, s, chatPath, `{"messages":[`+strings.Repeat("{},", 1e6)+`{}]}`, "messages")
	alive(t, s)
}

// TestA18_ManyChoices: each has its index, text and end; n is bounded.
func TestA18_ManyChoices(t *testing.T) {
	s, _ := caseServer(t, Config{})
	body := `"prompt":["a","b"],"n":2,"temperature":1,"seed":5,"max_tokens":12,` + letters() + `}`
	want := answered(t, s, completionsPath, `{`+body)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			texts, ends := make([]string, 4), make([]any, 4)
			for _, chunk := range chunksOf(t, s, completionsPath, `{"stream":true,`+body) {
				c := choiceOf(chunk)
				i := int(c["index"].(float64))
				texts[i] += c["text"].(string)
				if ends[i] != nil {
					t.Errorf("choice %d goes on after its end", i)
				}
				ends[i] = c["finish_reason"]
			}
			for i, c := range want.Choices {
				if c.Index != i || c.Text != texts[i] || ends[i] != "length" || len(c.Text) != 12 {
					t.Errorf("choice %d: %+v, streamed %q (%v)", i, c, texts[i], ends[i])
				}
			}
		})
	}
	both.Wait()
	if want.Choices[0].Text == want.Choices[1].Text || len(want.Choices) != 4 || want.Usage.Completion != 48 {
		t.Errorf("got %+v", want)
	}
	for _, n := range []string{"0", "-1", "129", "1000000"} {
		refused(t, s, completionsPath, `{"prompt":"a","n":`+n+`}`, "n")
	}
	alive(t, s)
}

// TestA19_NamesAndPaths: any model is served, and echoed; slips in paths and
// methods are answered in JSON.
func TestA19_NamesAndPaths(t *testing.T) {
	s, _ := caseServer(t, Config{ModelName: "org/tiny"})
	for name, want := range map[string]string{`"model":"nope",`: "nope", `"model":"",`: "org/tiny", ``: "org/tiny"} {
		if got := within(t, do(s, "POST", chatPath, `{`+name+`"max_tokens":1,`+hi+`}`).Body.String(), "model"); got != want {
			t.Errorf("%s is answered as %v", name, got)
		}
	}
	strict, _ := caseServer(t, Config{ModelName: "org/tiny", StrictModel: true})
	w := do(strict, "POST", chatPath, `{"model":"nope",`+hi+`}`)
	checkFailure(t, w.Code, w.Header(), w.Body.String(), 404, "model", "model_not_found", "nope")
	for path, want := range map[string]int{"/v1/models/": 200, "/v1//models": 200, "/v1/models/org/tiny": 200, "/v1/models/other": 404, "/nowhere": 404} {
		if w := do(s, "GET", path, ""); w.Code != want || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d, %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
	if w := do(s, "GET", chatPath, ""); w.Code != 405 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("GET %s: status %d, %s", chatPath, w.Code, w.Body)
	}
	alive(t, s)
}

// TestA20_UnknownFields: they change nothing, nor do names in other letters.
func TestA20_UnknownFields(t *testing.T) {
	s, _ := caseServer(t, Config{})
	got := answered(t, s, chatPath, `{"input_length_override":5,"user":"u","metadata":{"a":"b"},"extra_body":{"top_k":1},"max_tokens":9,"max_tokens":3.0,
		"MAX_TOKENS":1,"ignore_eos":true,`+hi+`}`)
	if got.Usage.Completion != 3 {
		t.Errorf("got %d tokens, want 3", got.Usage.Completion)
	}
	refused(t, s, chatPath, `{"max_tokens":"16",`+hi+`}`, "max_tokens")
	alive(t, s)
}

// TestA21_LengthOfAnswers: the newer name wins; a chat without either has the
// room that is left, a completion 16 tokens, and a cut is a "length".
func TestA21_LengthOfAnswers(t *testing.T) {
	s, _ := caseServer(t, Config{})
	for members, want := range map[string]int{`"max_completion_tokens":5`: 5, `"max_completion_tokens":5,"max_tokens":9`: 5, `"max_tokens":9,"max_completion_tokens":null`: 9} {
		if got := answered(t, s, chatPath, `{"ignore_eos":true,`+members+`,`+hi+`}`); got.Usage.Completion != want || got.Choices[0].FinishReason != "length" {
			t.Errorf("%s: %+v", members, got)
		}
	}
	if got := answered(t, s, chatPath, `{"ignore_eos":true,`+hi+`}`); got.Usage.Total != 512 || got.Choices[0].FinishReason != "length" {
		t.Errorf("a chat without a limit: %+v", got.Usage)
	}
	if got := answered(t, s, completionsPath, `{"ignore_eos":true,"prompt":"hi"}`); got.Usage.Completion != 16 || got.Choices[0].FinishReason != "length" {
		t.Errorf("a completion without a limit: %+v", got.Usage)
	}
}

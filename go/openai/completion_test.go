package openai

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/core"
)

func TestParseCompletionPrompts(t *testing.T) {
	tests := []struct {
		prompt string
		want   []Prompt
		many   bool
	}{
		{`"a"`, []Prompt{{Text: "a"}}, false},
		{`""`, []Prompt{{}}, false},
		{`["a","b"]`, []Prompt{{Text: "a"}, {Text: "b"}}, true},
		{`[1,2.0]`, []Prompt{{TokenIDs: []int32{1, 2}}}, false},
		{`[[1],[2,3]]`, []Prompt{{TokenIDs: []int32{1}}, {TokenIDs: []int32{2, 3}}}, true},
	}
	for _, test := range tests {
		got, err := ParseCompletion([]byte(`{"prompt":`+test.prompt+`,"best_of":1,"echo":true}`), DefaultCompletion())
		if err != nil {
			t.Errorf("%s: %v", test.prompt, err)
			continue
		}
		want := &CompletionRequest{
			Generation: Generation{N: 1, Sampling: core.SamplingParams{Temperature: 1, TopK: -1, TopP: 1, MaxTokens: 16, RepetitionPenalty: 1}},
			Prompts:    test.want, Many: test.many, Echo: true,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(test.prompt, diff)
		}
	}
}

// checkParam checks which field an error is about.
func checkParam(t *testing.T, body string, err error, param string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Status != 400 || e.Param == nil || *e.Param != param {
		t.Errorf("%s: got %v, want an error about %s", body, err, param)
	}
}

func TestParseCompletionErrors(t *testing.T) {
	long := `[` + strings.Repeat(`"x",`, MaxPrompts) + `"x"]`
	for _, test := range []struct{ members, param string }{
		{`"max_tokens":1`, "prompt"},
		{`"prompt":[]`, "prompt"},
		{`"prompt":3`, "prompt"},
		{`"prompt":{}`, "prompt"},
		{`"prompt":["a",1]`, "prompt[1]"},
		{`"prompt":[1,"a"]`, "prompt[1]"},
		{`"prompt":[1,-1]`, "prompt[1]"},
		{`"prompt":[1,1.5]`, "prompt[1]"},
		{`"prompt":[1,null]`, "prompt[1]"},
		{`"prompt":[[1],[]]`, "prompt[1]"},
		{`"prompt":[[1],[4e9]]`, "prompt[1][0]"},
		{`"prompt":` + long, "prompt"},
		{`"prompt":["a","b"],"n":129`, "n"},
		{`"prompt":[` + strings.Repeat(`"x",`, 99) + `"x"],"n":100`, "prompt"},
		{`"prompt":"a","n":0`, "n"},
		{`"prompt":"a","best_of":2`, "best_of"},
		{`"prompt":"a","suffix":"x"`, "suffix"},
		{`"prompt":"a","logprobs":21`, "logprobs"},
		{`"prompt":"a","logprobs":-1`, "logprobs"},
		{`"prompt":"a","logprobs":true`, "logprobs"},
		{`"prompt":"a","min_tokens":17`, "min_tokens"},
		{`"prompt":"a","top_p":0`, "top_p"},
		{`"prompt":"a","stop":""`, "stop"},
		{`"prompt":"a","stop":["ok",""]`, "stop[1]"},
		{`"prompt":"a","stop":[1]`, "stop[0]"},
		{`"prompt":"a","stop":5`, "stop"},
		{`"prompt":"a","stop":[` + strings.Repeat(`"x",`, 16) + `"x"]`, "stop"},
		{`"prompt":"a","stop":"` + strings.Repeat("x", 4097) + `"`, "stop"},
		{`"prompt":"a","stop_token_ids":["x"]`, "stop_token_ids[0]"},
	} {
		body := `{` + test.members + `}`
		_, err := ParseCompletion([]byte(body), DefaultCompletion())
		checkParam(t, brief([]byte(body)), err, test.param)
	}
}

func TestStopForms(t *testing.T) {
	for form, want := range map[string][]string{`"x"`: {"x"}, `["x","y"]`: {"x", "y"}, `null`: nil, `[]`: nil, `["1","2","3","4","5"]`: {"1", "2", "3", "4", "5"}} {
		got, err := ParseCompletion([]byte(`{"prompt":"p","stop":`+form+`}`), DefaultCompletion())
		if err != nil || !cmp.Equal(want, got.Stop) {
			t.Errorf("%s: got %v, %v", form, got, err)
		}
	}
}

func TestParseGenerate(t *testing.T) {
	seven := uint64(7)
	base := core.SamplingParams{Temperature: 1, TopK: -1, TopP: 1, MaxTokens: 128, RepetitionPenalty: 1}
	greedy := core.SamplingParams{TopK: -1, TopP: 1, MaxTokens: 5, RepetitionPenalty: 1, IgnoreEOS: true}
	tests := []struct {
		name, body string
		want       GenerateRequest
	}{
		{"client", `{"text":"a","sampling_params":{"temperature":0.0,"max_new_tokens":5,"ignore_eos":true},"stream":true,"lora_path":null,"return_logprob":false,"return_routed_experts":false,"logprob_start_len":-1}`,
			GenerateRequest{Stream: true, Prompts: []GeneratePrompt{{Prompt: Prompt{Text: "a"}, Sampling: greedy, N: 1}}}},
		{"defaults", `{"text":"a"}`, GenerateRequest{Prompts: []GeneratePrompt{{Prompt: Prompt{Text: "a"}, Sampling: base, N: 1}}}},
		{"ids", `{"input_ids":[1,2],"rid":"r"}`, GenerateRequest{Prompts: []GeneratePrompt{{Prompt: Prompt{TokenIDs: []int32{1, 2}}, RID: "r", Sampling: base, N: 1}}}},
		{"lists", `{"input_ids":[[1],[2]],"rid":["a","b"],"sampling_params":[{"temperature":0,"max_new_tokens":5,"ignore_eos":true},{"n":2,"stop":"x","stop_token_ids":[3]}]}`,
			GenerateRequest{Many: true, Prompts: []GeneratePrompt{
				{Prompt: Prompt{TokenIDs: []int32{1}}, RID: "a", Sampling: greedy, N: 1},
				{Prompt: Prompt{TokenIDs: []int32{2}}, RID: "b", Sampling: base, N: 2, Stop: []string{"x"}, StopTokenIDs: []int32{3}},
			}}},
		{"n", `{"text":"a","sampling_params":{"n":2,"sampling_seed":7}}`, GenerateRequest{Many: true, Prompts: []GeneratePrompt{
			{Prompt: Prompt{Text: "a"}, N: 2, Sampling: core.SamplingParams{Temperature: 1, TopK: -1, TopP: 1, MaxTokens: 128, RepetitionPenalty: 1, Seed: &seven}},
		}}},
		{"plain", `{"prompt":"a","max_tokens":5,"ignore_eos":true}`,
			GenerateRequest{Plain: true, Stream: true, Prompts: []GeneratePrompt{{Prompt: Prompt{Text: "a"}, Sampling: greedy, N: 1}}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseGenerate([]byte(test.body), DefaultSampling())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseGenerateErrors(t *testing.T) {
	for _, test := range []struct{ body, param string }{
		{`{}`, "text"},
		{`{"text":"a","input_ids":[1]}`, "input_ids"},
		{`{"text":[1]}`, "text"},
		{`{"input_ids":"a"}`, "input_ids"},
		{`{"text":["a","b"],"rid":["x"]}`, "rid"},
		{`{"text":"a","rid":5}`, "rid"},
		{`{"text":"a","rid":[]}`, "rid"},
		{`{"text":["a","b"],"sampling_params":[{}]}`, "sampling_params"},
		{`{"text":["a"],"sampling_params":[3]}`, "sampling_params[0]"},
		{`{"text":"a","sampling_params":{"temperature":-1}}`, "sampling_params.temperature"},
		{`{"text":["a"],"sampling_params":[{"stop":""}]}`, "sampling_params[0].stop"},
		{`{"text":"a","sampling_params":{"min_new_tokens":129}}`, "sampling_params.min_new_tokens"},
		{`{"text":"a","sampling_params":{"max_new_tokens":0}}`, "sampling_params.max_new_tokens"},
		{`{"text":"a","return_logprob":1}`, "return_logprob"},
		{`{"text":["a","b"],"return_logprob":[true]}`, "return_logprob"},
		{`{"text":["a","b"],"return_logprob":[true,3]}`, "return_logprob[1]"},
		{`{"text":"a","top_logprobs_num":21}`, "top_logprobs_num"},
		{`{"text":"a","logprob_start_len":-2}`, "logprob_start_len"},
		{`{"text":"a","token_ids_logprob":[1]}`, "token_ids_logprob"},
		{`{"text":"a","sampling_params":{"repetition_penalty":0}}`, "sampling_params.repetition_penalty"},
		{`{"prompt":"a"}`, "max_tokens"},
		{`{"prompt":["a"],"max_tokens":1}`, "prompt"},
	} {
		_, err := ParseGenerate([]byte(test.body), DefaultSampling())
		checkParam(t, test.body, err, test.param)
	}
}

func TestParseOperations(t *testing.T) {
	abort, err := ParseAbort([]byte(`{"rid":"x"}`))
	if err != nil || *abort != (AbortRequest{RID: "x"}) {
		t.Errorf("got %+v, %v", abort, err)
	}
	_, err = ParseAbort([]byte(`{}`))
	checkParam(t, "abort", err, "rid")
	texts, err := ParseTokenize([]byte(`{"prompt":["a","b"],"add_special_tokens":false}`))
	if diff := cmp.Diff(&TokenizeRequest{Texts: []string{"a", "b"}, Many: true}, texts); err != nil || diff != "" {
		t.Error(err, diff)
	}
	_, err = ParseTokenize([]byte(`{"prompt":[1]}`))
	checkParam(t, "tokenize", err, "prompt")
	ids, err := ParseDetokenize([]byte(`{"tokens":[1,2]}`))
	if diff := cmp.Diff(&DetokenizeRequest{TokenIDs: [][]int32{{1, 2}}, SkipSpecial: true}, ids); err != nil || diff != "" {
		t.Error(err, diff)
	}
	_, err = ParseDetokenize([]byte(`{"tokens":"a"}`))
	checkParam(t, "detokenize", err, "tokens")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"prompt":["a",[1]],"n":2,"stop":["x"],"rid":["r"]}`))
	f.Add([]byte(`{"text":["a"],"sampling_params":[{"n":2,"stop_token_ids":[1e9]}],"tokens":[[1]]}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		if req, err := ParseCompletion(body, DefaultCompletion()); err == nil && (len(req.Prompts) == 0 || req.Sampling.MaxTokens > math.MaxInt32) {
			panic("an invalid request is valid")
		}
		if req, err := ParseGenerate(body, DefaultSampling()); err == nil && len(req.Prompts) == 0 {
			panic("a request without a prompt is valid")
		}
		_, _ = ParseAbort(body)
		_, _ = ParseTokenize(body)
		_, _ = ParseDetokenize(body)
	})
}

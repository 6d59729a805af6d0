package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/llm"
)

// TestBudget: reasoning is ended when it has used up its tokens.
func TestBudget(t *testing.T) {
	end := "\n</think>\n\n"
	for _, test := range []struct {
		name, members   string
		parser          string
		first, second   string
		reasoning, text string
		prompt          string // what the second request goes on behind
		tokens          int
	}{
		{"used up", `"thinking_budget":3`, "deepseek-r1", "abcdef", "Hi", "abc", "Hi", "abc" + end, 3 + len(end) + 2},
		{"not used up", `"thinking_budget":12`, "deepseek-r1", "ab</think>Hi", "", "ab", "Hi", "", 12},
		{"behind the mark", `"chat_template_kwargs":{"thinking_budget":2}`, "qwen3", "<think>abc", "Hi", "ab", "Hi", "<think>ab" + end, 9 + len(end) + 2},
		{"no reasoning", `"thinking_budget":0`, "qwen3", "Hello", "", "", "Hello", "", 5},
		{"none allowed", `"thinking_budget":0`, "deepseek-r1", "", "Hi", "", "Hi", end, len(end) + 2},
		{"no room", `"thinking_budget":3,"max_tokens":6`, "deepseek-r1", "abcdef", "", "abcdef", "", "", 6},
		{"no parser", `"thinking_budget":3`, "", "abcdef", "", "", "abcdef", "", 6},
		{"not apart", `"thinking_budget":3,"separate_reasoning":false`, "deepseek-r1", "abcdef", "Hi", "", "abc" + end + "Hi", "abc" + end, 3 + len(end) + 2},
	} {
		for _, stream := range []string{"true", "false"} {
			t.Run(test.name+"/"+stream, func(t *testing.T) {
				e := newFake()
				e.scripts = [][]llm.Event{spelled(test.first), spelled(test.second)}
				if test.first == "" {
					e.scripts = e.scripts[1:]
				}
				s := newServer(t, e, Config{ReasoningParser: test.parser})
				got := collect(t, s, `{"stream":`+stream+`,"stream_options":{"include_usage":true},`+test.members+`,`+hi+`}`)
				want := collected{Reasoning: test.reasoning, Content: test.text, Finish: "stop", Prompt: 3, Tokens: test.tokens}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				last := e.requests[len(e.requests)-1]
				if behind := text(last.TokenIDs[3:]); behind != test.prompt {
					t.Errorf("the last request goes on behind %q, want %q", behind, test.prompt)
				}
				if e.live.Load() != 0 {
					t.Errorf("%d requests run on", e.live.Load())
				}
			})
		}
	}
}

func text(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteRune(id)
	}
	return b.String()
}

// collected is a chat's answer, streamed or not.
type collected struct {
	Reasoning, Content, Finish string
	Prompt, Tokens             int
}

func collect(t *testing.T, s *Server, body string) (got collected) {
	t.Helper()
	w := do(s, "POST", chatPath, body)
	type part struct {
		Content          string
		ReasoningContent string `json:"reasoning_content"`
	}
	lines := []string{w.Body.String()}
	if w.Header().Get("Content-Type") == "text/event-stream" {
		lines = streamed(t, w.Body.String())
	}
	for _, line := range lines {
		var doc struct {
			Choices []struct {
				Message, Delta part
				FinishReason   string `json:"finish_reason"`
			}
			Usage *struct {
				Completion int `json:"completion_tokens"`
				Prompt     int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil || w.Code != http.StatusOK {
			t.Fatalf("status %d, %v: %s", w.Code, err, line)
		}
		for _, c := range doc.Choices {
			got.Reasoning += c.Message.ReasoningContent + c.Delta.ReasoningContent
			got.Content += c.Message.Content + c.Delta.Content
			got.Finish += c.FinishReason
		}
		if doc.Usage != nil {
			got.Tokens = doc.Usage.Completion
			got.Prompt = doc.Usage.Prompt
		}
	}
	return got
}

// TestGrammarWithinAnswer: a grammar holds for the answer, but not for reasoning,
// nor for calls.
func TestGrammarWithinAnswer(t *testing.T) {
	gap, end := chatparse.ThinkingGap, chatparse.ThinkingEnd
	qwen3, r1, both := Config{ReasoningParser: "qwen3"}, Config{ReasoningParser: "deepseek-r1"}, Config{ReasoningParser: "qwen3", ToolCallParser: "qwen"}
	call := `<tool_call>{"name":"f","arguments":{}}</tool_call>`
	answered := collected{Content: "{}", Finish: "stop"}
	thought := func(reasoning string) collected {
		return collected{Reasoning: reasoning, Content: "{}", Finish: "stop"}
	}
	for _, test := range []struct {
		name, members string
		cfg           Config
		scripts       []string
		prompts       []string // what the requests go on behind
		want          collected
		tokens        int
	}{
		{"reasoning", "", qwen3, []string{"<think>a</think>xyz", "{}"}, []string{"", "<think>a</think>" + gap}, thought("a"), 16 + 2 + 2},
		{"reasoning from the beginning", "", r1, []string{"ab</think>xyz", "{}"}, []string{"", "ab</think>" + gap}, thought("ab"), 10 + 2 + 2},
		{"budget", `"thinking_budget":2,`, r1, []string{"abc", "{}"}, []string{"", "ab" + end}, thought("ab"), 2 + len(end) + 2},
		{"no reasoning", "", qwen3, []string{"Hi", "{}"}, []string{"", ""}, answered, 2},
		{"ended at once", "", qwen3, []string{"", "{}"}, []string{"", ""}, answered, 2},
		{"ended in reasoning", "", qwen3, []string{"<think>a"}, []string{""}, collected{Reasoning: "a", Finish: "stop"}, 8},
		{"no room", `"max_tokens":10,`, r1, []string{"ab</think>"}, []string{""}, collected{Reasoning: "ab", Finish: "stop"}, 10},
		{"no parser", "", Config{}, []string{"{}"}, []string{""}, answered, 2},
		{"no tools", "", Config{ToolCallParser: "qwen"}, []string{"{}"}, []string{""}, answered, 2},

		{"call", twoTools + `,`, Config{ToolCallParser: "qwen"}, []string{call}, []string{""}, collected{Finish: "tool_calls"}, len(call)},
		{"no call", twoTools + `,`, Config{ToolCallParser: "qwen"}, []string{"<tool_call>f", "{}"}, []string{"", ""}, answered, 2},
		{"call without end", twoTools + `,`, Config{ToolCallParser: "qwen"}, []string{`<tool_call>{"name":"f"`, "{}"}, []string{"", ""}, answered, 2},
		{"another object", twoTools + `,`, Config{ToolCallParser: "llama3"}, []string{`{"name":"Bob","parameters":{}}`, "{}"}, []string{"", ""}, answered, 2},
		{"reasoning and call", twoTools + `,`, both, []string{"<think>a</think>" + call}, []string{""}, collected{Reasoning: "a", Finish: "tool_calls"}, 16 + len(call)},
		{"reasoning and no call", twoTools + `,`, both, []string{"<think>a</think>\nHi", "{}"}, []string{"", "<think>a</think>" + gap}, thought("a"), 16 + 2 + 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newFake()
			for _, script := range test.scripts {
				e.scripts = append(e.scripts, spelled(script))
			}
			s := newServer(t, e, test.cfg)
			got := collect(t, s, `{"response_format":{"type":"json_object"},`+test.members+hi+`}`)
			test.want.Prompt, test.want.Tokens = 3, test.tokens
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if len(e.requests) != len(test.prompts) || e.live.Load() != 0 {
				t.Fatalf("%d requests, want %d; %d run on", len(e.requests), len(test.prompts), e.live.Load())
			}
			for i, req := range e.requests {
				bound := i > 0 || len(test.prompts) == 1 && got.Content != ""
				if behind := text(req.TokenIDs[3:]); behind != test.prompts[i] || (req.Params.Grammar.Kind != "") != bound {
					t.Errorf("request %d goes on behind %q with grammar %q", i, behind, req.Params.Grammar.Kind)
				}
			}
		})
	}
	s := newServer(t, newFake(), Config{ReasoningParser: "qwen3"})
	refused(t, s, chatPath, `{"regex":"wrong",`+hi+`}`, "regex")
	e := newFake(llm.Event{Finish: llm.FinishError})
	s = newServer(t, e, Config{ReasoningParser: "qwen3"})
	if w := do(s, "POST", chatPath, `{"regex":"a",`+hi+`}`); w.Code != http.StatusInternalServerError || len(e.requests) != 1 {
		t.Errorf("a failed request: %d, %d requests", w.Code, len(e.requests))
	}
}

// TestBudgetOfEngine: the tokens behind reasoning that was cut are those of a
// prompt that holds it, and the engine has computed that once.
func TestBudgetOfEngine(t *testing.T) {
	s, l := caseServer(t, Config{ReasoningParser: "deepseek-r1"})
	body := `"temperature":0,"max_tokens":40,` + letters()
	plain := answered(t, s, completionsPath, `{"prompt":"<think>",`+strings.Replace(body, "40", "20", 1)+`}`)
	cut := plain.Choices[0].Text[:8]
	forced, err := l.Tokenizer().Encode(chatparse.ThinkingEnd, false)
	if err != nil {
		t.Fatal(err)
	}
	end := strings.ReplaceAll(chatparse.ThinkingEnd, "\n", `\n`)
	want := answered(t, s, completionsPath, `{"prompt":"<think>`+cut+end+`",`+strings.Replace(body, "40", strconv.Itoa(40-8-len(forced)), 1)+`}`)
	got := collect(t, s, `{"prompt":"<think>","thinking_budget":8,`+body+`}`)
	if got.Reasoning != cut || got.Content != want.Choices[0].Text || got.Finish != "length" || got.Tokens != 40 {
		t.Errorf("got %+v, want %q and %q", got, cut, want.Choices[0].Text)
	}
	alive(t, s)
}

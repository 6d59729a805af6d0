package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/go/llm"
)

// Cases from public bug reports about chat templates and models that a client
// sees, by their numbers, on a real engine.

const (
	tinyModel = "../model/testdata/tiny/llama-tied"
	noWeights = "none"
)

// modelServer serves the tiny model with other files; without weights, with random
// ones.
func modelServer(t *testing.T, files map[string]string) *Server {
	t.Helper()
	dir, bare := t.TempDir(), files["model.safetensors"] == noWeights
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} {
		text, changed := files[name]
		if !changed {
			data, err := os.ReadFile(filepath.Join(tinyModel, name))
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if template, ok := files["chat_template.jinja"]; ok {
		if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := llm.New(t.Context(), llm.Config{
		Model: dir, DType: "float32", NumPageOverride: 1024, DummyWeight: bare, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newServer(t, nil, Config{})
	s.SetEngine(LLM{LLM: l})
	return s
}

// mistral is the part of Mistral's templates that refuses conversations.
const mistral = `{%- if messages[0]['role'] == 'system' %}{%- set messages = messages[1:] %}{%- endif %}
{%- if not messages %}{{- raise_exception('Conversation must have a user message') }}{%- endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- '[' + message['content'] + ']' }}
{%- endfor %}`

// TestA33_TemplateRefusals: what a template refuses is the caller's fault, told
// in the template's words, also before a stream has begun.
func TestA33_TemplateRefusals(t *testing.T) {
	s := modelServer(t, map[string]string{"chat_template.jinja": mistral})
	for name, test := range map[string]struct{ messages, want string }{
		"two users":       {`{"role":"user","content":"a"},{"role":"user","content":"b"}`, "roles must alternate"},
		"system only":     {`{"role":"system","content":"a"}`, "must have a user message"},
		"assistant first": {`{"role":"assistant","content":"a"}`, "roles must alternate"},
	} {
		for _, stream := range []string{"true", "false"} {
			w := do(s, "POST", chatPath, `{"max_tokens":2,"stream":`+stream+`,"messages":[`+test.messages+`]}`)
			checkFailure(t, w.Code, w.Header(), w.Body.String(), http.StatusBadRequest, "messages", nil, test.want)
			if t.Failed() {
				t.Fatalf("%s, stream %s", name, stream)
			}
		}
	}
	if w := do(s, "POST", chatPath, `{"max_tokens":2,"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}`); w.Code != http.StatusOK {
		t.Errorf("a conversation that the template takes: %d %s", w.Code, w.Body)
	}
}

// promptTokens runs a short chat and returns how many tokens its prompt had.
func promptTokens(t *testing.T, s *Server, members string) int {
	t.Helper()
	w := do(s, "POST", chatPath, `{`+members+`,`+hi+`}`)
	var answer struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s: %v", members, w.Code, w.Body, err)
	}
	return answer.Usage.Prompt
}

// TestA34_EnableThinking: chat_template_kwargs reaches the template, and can't
// replace what the request says.
func TestA34_EnableThinking(t *testing.T) {
	const block = "<think>\n\n</think>\n\n"
	s := modelServer(t, map[string]string{"chat_template.jinja": `{% for m in messages %}{{ m.content }}{% endfor %}` +
		`{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}`})
	const short = `"max_tokens":1,"temperature":0,"ignore_eos":true`
	absent := promptTokens(t, s, short)
	on := promptTokens(t, s, short+`,"chat_template_kwargs":{"enable_thinking":true}`)
	off := promptTokens(t, s, short+`,"chat_template_kwargs":{"enable_thinking":false}`)
	if on != absent || off <= absent || off > absent+len(block) {
		t.Errorf("prompts of %d tokens without the switch, %d with true, %d with false; want equal ones, and up to %d more", absent, on, off, len(block))
	}
	for _, test := range []struct{ kwargs, param, want string }{
		{`{"messages":[]}`, "chat_template_kwargs.messages", "can't be set"},
		{`{"add_generation_prompt":false}`, "chat_template_kwargs.add_generation_prompt", "can't be set"},
		{`true`, "chat_template_kwargs", "must be an object"},
		{`[1]`, "chat_template_kwargs", "must be an object"},
	} {
		w := do(s, "POST", chatPath, `{`+short+`,"chat_template_kwargs":`+test.kwargs+`,`+hi+`}`)
		checkFailure(t, w.Code, w.Header(), w.Body.String(), http.StatusBadRequest, test.param, nil, test.want)
	}
}

// TestA36_A41_EndOfAnswer: any listed end token ends an answer with "stop" and is
// neither counted nor shown; with ignore_eos the answer goes on.
func TestA36_A41_EndOfAnswer(t *testing.T) {
	free := modelServer(t, nil)
	ids := answerIDs(t, free)
	whole := complete(t, free, `"ignore_eos":true`)
	if whole.Usage.Completion != 12 || whole.Choices[0].Finish != "length" {
		t.Fatalf("%+v", whole)
	}
	for _, at := range []int{2, 5} {
		list := fmt.Sprintf(`{"eos_token_id":[257,%d,319]}`, ids[at])
		kept := slices.Index(ids, ids[at])
		s := modelServer(t, map[string]string{"generation_config.json": list})
		got := complete(t, s, `"ignore_eos":false`)
		if c := got.Choices[0]; got.Usage.Completion != kept || c.Finish != "stop" || c.Text == "" || !strings.HasPrefix(whole.Choices[0].Text, c.Text) {
			t.Errorf("%s: %+v, want %d tokens, stop, the beginning of %q", list, got, kept, whole.Choices[0].Text)
		}
		if got := complete(t, s, `"ignore_eos":true`); got.Usage.Completion != 12 || got.Choices[0] != whole.Choices[0] {
			t.Errorf("%s, ignore_eos: %+v, want %+v", list, got, whole)
		}
	}
}

// completion is what the tests read of an answer of /v1/completions.
type completion struct {
	Choices []struct {
		Text   string
		Finish string `json:"finish_reason"`
	}
	Usage struct {
		Completion int `json:"completion_tokens"`
	}
}

func complete(t *testing.T, s *Server, members string) (answer completion) {
	t.Helper()
	w := do(s, "POST", "/v1/completions", `{"prompt":[5,6,7],"max_tokens":12,"temperature":0,`+members+`}`)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Choices) != 1 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return answer
}

// answerIDs are the tokens of that answer.
func answerIDs(t *testing.T, s *Server) []int32 {
	t.Helper()
	p := llm.DefaultSampling()
	p.MaxTokens, p.IgnoreEOS = 12, true
	stream, err := s.engine.Stream(t.Context(), llm.Request{TokenIDs: []int32{5, 6, 7}, Params: p})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var ids []int32
	for {
		ev, err := stream.Next(t.Context())
		if err != nil {
			return ids
		}
		if ev.HasToken {
			ids = append(ids, ev.Token)
		}
	}
}

// TestA43_PaddedVocabulary: a prompt may have rows of the embedding matrix that
// have no token, and a hot answer is whole; ids beyond the matrix are refused.
func TestA43_PaddedVocabulary(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(tinyModel, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := modelServer(t, map[string]string{
		"config.json":       strings.Replace(string(config), `"vocab_size": 320`, `"vocab_size": 512`, 1),
		"model.safetensors": noWeights,
	})
	w := do(s, "POST", "/v1/completions", `{"prompt":[5,511,7],"max_tokens":400,"temperature":2,"ignore_eos":true,"n":2}`)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"completion_tokens":800`) {
		t.Errorf("a prompt with padding: %d %s", w.Code, w.Body)
	}
	w = do(s, "POST", "/v1/completions", `{"prompt":[5,512,7],"max_tokens":4}`)
	checkFailure(t, w.Code, w.Header(), w.Body.String(), http.StatusBadRequest, "prompt", nil, "512")
}

package server

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// qwen3Template is the real one, of the tokenizer's golden renderings.
func qwen3Template(t *testing.T) (file string, want map[string]string) {
	t.Helper()
	f, err := os.Open("../../tokenizer/testdata/chat.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Templates map[string]struct{ Source string }
		Cases     []struct{ Template, Title, Want string }
	}
	if err := json.NewDecoder(z).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	want = map[string]string{}
	for _, c := range doc.Cases {
		if c.Template == "qwen3" {
			want[c.Title] = c.Want
		}
	}
	file = filepath.Join(t.TempDir(), "qwen3.jinja")
	if err := os.WriteFile(file, []byte(doc.Templates["qwen3"].Source), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, want
}

// qwen3 is an engine with the real template.
func qwen3(t *testing.T) (l *llm.LLM, want map[string]string) {
	t.Helper()
	file, want := qwen3Template(t)
	l, err := llm.New(t.Context(), llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 4096, MaxSeqLenOverride: 4096, ChatTemplate: file, Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, want
}

// TestEnableThinking: whether an answer may reason follows from the prompt.
func TestEnableThinking(t *testing.T) {
	l, _ := qwen3(t)
	s := newServer(t, nil, Config{ReasoningParser: "qwen3"})
	s.SetEngine(LLM{LLM: l})
	for members, may := range map[string]bool{
		``: true, `"chat_template_kwargs":{"enable_thinking":true},`: true, `"chat_template_kwargs":{"enable_thinking":false},`: false,
	} {
		req, err := openai.ParseChat([]byte(`{`+members+hi+`}`), openai.DefaultSampling())
		if err != nil {
			t.Fatal(err)
		}
		ids, _, err := s.encodeChat(req)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.parserOptions(req, ids)
		if err != nil {
			t.Fatal(err)
		}
		if got := chatparse.New(o).Undecided(); got != may {
			t.Errorf("%s: the answer to …%q may reason: %v", members, o.Prompt, got)
		}
	}
}

// TestToolTurnsInTemplate: a conversation with tools in OpenAI's form gives the
// prompt that transformers makes of the same one with arguments that are values.
func TestToolTurnsInTemplate(t *testing.T) {
	l, want := qwen3(t)
	parameters := `{"type":"object","properties":{"city":{"type":"string","description":"the city"},"days":{"type":"integer","minimum":1,"maximum":14,"default":3},` +
		`"bias":{"type":"number","minimum":-1.0,"maximum":1e16,"multipleOf":1e-05},"units":{"enum":["C","F",null],"nullable":true}},"required":["city"],"additionalProperties":false}`
	body := `{"messages":[{"role":"system","content":"Use the tools."},{"role":"user","content":"Weather in Zürich & 東京?"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Zürich\",\"days\":2,\"bias\":1.0}"}}]},
		{"role":"tool","content":"{\"temp\": 21.5, \"sky\": \"☀️\"}","tool_call_id":"call_1"}],
		"tools":[{"type":"function","function":{"name":"get_weather","description":"Get the weather <now> & 'soon' in a city, e.g. Zürich\u2028or 東京","parameters":` + parameters + `}}]}`
	req, err := openai.ParseChat([]byte(body), openai.DefaultSampling())
	if err != nil {
		t.Fatal(err)
	}
	ids, err := l.EncodeChat(templateInput(req))
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Tokenizer().Decode(ids, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want["tool turns"], got); diff != "" {
		t.Error(diff)
	}
}

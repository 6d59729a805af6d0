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

// goldenChats are the templates and renderings that the tokenizer is tested with.
type goldenChats struct {
	Templates map[string]struct{ Source string }
	Cases     []struct{ Template, Title, Want string }
}

func readGoldenChats(t *testing.T) (doc goldenChats) {
	t.Helper()
	f, err := os.Open("../../tokenizer/testdata/chat.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(z).Decode(&doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// withTemplate is a server of an engine with another chat template.
func withTemplate(t *testing.T, source string, cfg Config) *Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chat.jinja")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := llm.New(t.Context(), llm.Config{Model: tinyModel, DType: "float32", NumPageOverride: 4096, MaxSeqLenOverride: 4096, ChatTemplate: file, Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := newServer(t, nil, cfg)
	s.SetEngine(LLM{LLM: l})
	return s
}

func TestDetectParsers(t *testing.T) {
	chats := readGoldenChats(t)
	for name, test := range map[string]struct{ source, tools, reasoning string }{
		"qwen3":   {chats.Templates["qwen3"].Source, "qwen", "qwen3"},
		"llama3":  {chats.Templates["llama3"].Source, "llama3", ""},
		"smollm2": {chats.Templates["smollm2"].Source, "", ""},
		"mistral": {`{% for m in messages %}{% if m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}{% if c.id|length != 9 %}{{ raise_exception("id") }}{% endif %}{{ c.function|tojson }}{% endfor %}]{% else %}[INST] {{ m.content }}[/INST]{% endif %}{% endfor %}`, "mistral", ""},
		"r1":      {`{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}{% if add_generation_prompt %}<Assistant><think>{{ "\n" }}{% endif %}`, "", "deepseek-r1"},
		"coder":   {`{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ "\n" }}<function={{ c.function.name }}></function></tool_call>{% endfor %}{% endfor %}`, "", ""},
		"refuses": {`{{ raise_exception("no") }}`, "", ""},
	} {
		s := withTemplate(t, test.source, Config{ToolCallParser: "auto", ReasoningParser: "auto"})
		if s.cfg.ToolCallParser != test.tools || s.cfg.ReasoningParser != test.reasoning {
			t.Errorf("%s: got %q and %q, want %q and %q", name, s.cfg.ToolCallParser, s.cfg.ReasoningParser, test.tools, test.reasoning)
		}
	}
}

// TestEnableThinking: whether an answer may reason follows from the prompt.
func TestEnableThinking(t *testing.T) {
	s := withTemplate(t, readGoldenChats(t).Templates["qwen3"].Source, Config{ReasoningParser: "qwen3"})
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
	chats := readGoldenChats(t)
	s := withTemplate(t, chats.Templates["qwen3"].Source, Config{})
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
	ids, _, err := s.encodeChat(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.engine.Decode(ids, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chats.Cases {
		if c.Template == "qwen3" && c.Title == "tool turns" {
			if diff := cmp.Diff(c.Want, got); diff != "" {
				t.Error(diff)
			}
			return
		}
	}
	t.Error("the golden rendering is gone")
}

package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOpen(t *testing.T) {
	tok, err := Open("testdata/llama")
	if err != nil {
		t.Fatal(err)
	}
	defer tok.Close()
	golden := load[idsFixture](t, "llama_dir_ids.json.gz")
	compareEncode(t, tok, golden.Texts, golden.IDs["special"], true)
	compareDecode(t, tok, load[idsFixture](t, "llama_ids.json.gz"))
	bos, okB := tok.BOS()
	eos, okE := tok.EOS()
	if bos != 1 || eos != 2 || !okB || !okE {
		t.Errorf("BOS, EOS = %d %v, %d %v, want 1 true, 2 true", bos, okB, eos, okE)
	}
	if tok.HasChatTemplate() {
		t.Error("HasChatTemplate() = true for a directory without one")
	}
	if _, err := tok.RenderChat(nil, TemplateOptions{}); !errors.Is(err, ErrNoChatTemplate) {
		t.Errorf("RenderChat without a template: %v, want ErrNoChatTemplate", err)
	}
}

// copyDir makes a copy of testdata/llama with some files written anew.
func copyDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join("testdata/llama", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := files[name]; !ok {
			files[name] = string(data)
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpenConfig(t *testing.T) {
	hi := []Message{{Role: "user", Content: "hi"}}
	for name, c := range map[string]struct {
		files  map[string]string
		o      TemplateOptions
		render string
		first  int32 // the first id with special tokens
		last   int32
	}{
		"template string": {
			files:  map[string]string{"tokenizer_config.json": `{"bos_token":"<s>","chat_template":"A{{ bos_token }}{{ messages[0].content }}"}`},
			render: "A<s>hi", first: 1,
		},
		"token object, flags": {
			files: map[string]string{"tokenizer_config.json": `{"bos_token":{"content":"<s>"},"eos_token":{"content":"</s>"},
				"add_bos_token":false,"add_eos_token":true,"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`},
			render: "D", last: 2,
		},
		"named template for tools": {
			files: map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`},
			o:     TemplateOptions{Tools: []any{"x"}}, render: "T", first: 1,
		},
		"jinja file wins": {
			files:  map[string]string{"tokenizer_config.json": `{"chat_template":"A"}`, "chat_template.jinja": "J\n", "chat_template.json": `{"chat_template":"B"}`},
			render: "J", first: 1,
		},
		"additional templates": {
			files: map[string]string{"chat_template.jinja": "J", "additional_chat_templates/tool_use.jinja": "U"},
			o:     TemplateOptions{Tools: []any{"x"}}, render: "U", first: 1,
		},
		"json file wins": {
			files:  map[string]string{"tokenizer_config.json": `{"chat_template":"A"}`, "chat_template.json": `{"chat_template":"B"}`},
			render: "B", first: 1,
		},
		"special tokens map": {
			files:  map[string]string{"tokenizer_config.json": `{"chat_template":"{{ eos_token }}"}`, "special_tokens_map.json": `{"eos_token":"</s>"}`},
			render: "</s>", first: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Open(copyDir(t, c.files))
			if err != nil {
				t.Fatal(err)
			}
			defer tok.Close()
			if got, err := tok.RenderChat(hi, c.o); err != nil || got != c.render {
				t.Errorf("RenderChat() = %q, %v, want %q", got, err, c.render)
			}
			ids, err := tok.Encode("hi", true)
			if err != nil || len(ids) == 0 {
				t.Fatalf("Encode() = %v, %v", ids, err)
			}
			if (ids[0] == 1) != (c.first == 1) || (ids[len(ids)-1] == 2) != (c.last == 2) {
				t.Errorf("Encode() = %v, want it to begin with BOS: %v, to end with EOS: %v", ids, c.first == 1, c.last == 2)
			}
		})
	}
}

// Tokens that only tokenizer_config.json lists are matched whole, and shown
// unless they are special.
func TestAddedTokensDecoder(t *testing.T) {
	tok, err := Open(copyDir(t, map[string]string{
		"tokenizer.json": `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"<think>":2,"</s>":3},"merges":[]},
			"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},
			"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}}`,
		"tokenizer_config.json": `{"added_tokens_decoder":{
			"2":{"content":"<think>","special":false},"3":{"content":"</s>","special":true}}}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer tok.Close()
	ids, err := tok.Encode("a<think>b</s>", true)
	if d := cmp.Diff([]int32{0, 2, 1, 3}, ids); d != "" || err != nil {
		t.Errorf("Encode: %v (-want +got):\n%s", err, d)
	}
	if text, err := tok.Decode(ids, true); text != "a<think>b" || err != nil {
		t.Errorf("Decode without special tokens = %q, %v", text, err)
	}
}

func readString(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestOpenErrors(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"bad json":          {map[string]string{"tokenizer.json": "{"}, "tokenizer.json: unexpected end"},
		"no vocab":          {map[string]string{"tokenizer.json": `{"model":{"type":"BPE"}}`}, "it has no vocab"},
		"huge id":           {map[string]string{"tokenizer.json": `{"model":{"type":"BPE","vocab":{"a":2000000000},"merges":[]},"decoder":{"type":"ByteLevel"}}`}, "id 2000000000, outside"},
		"negative id":       {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":-1}},"decoder":{"type":"ByteLevel"}}`}, "id -1, outside"},
		"unk token":         {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0},"unk_token":"<unk>"}}`}, `unk_token "<unk>" is not in the vocab`},
		"decoder":           {map[string]string{"tokenizer.json": `{"model":{"vocab":{"a":0}},"decoder":{"type":"WordPiece"}}`}, `decoder "WordPiece"`},
		"bad model":         {map[string]string{"tokenizer.json": `{"model":{"type":"X","vocab":{"a":0}},"decoder":{"type":"ByteLevel"}}`}, "load vocabulary"},
		"bad config":        {map[string]string{"tokenizer_config.json": `[]`}, "tokenizer_config.json"},
		"bad template":      {map[string]string{"tokenizer_config.json": `{"chat_template":3}`}, "chat_template is neither"},
		"bad added decoder": {map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"x":{"content":"a"}}}`}, `the key "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(copyDir(t, c.files))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no tokenizer.json") {
		t.Errorf("Open of an empty directory: %v", err)
	}
}

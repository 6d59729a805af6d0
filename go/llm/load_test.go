package llm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// variant is a copy of the tiny model with other files: nil leaves a file out.
func variant(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} {
		data, changed := files[name]
		if !changed {
			var err error
			if data, err = os.ReadFile(filepath.Join(tinyModel, name)); err != nil {
				t.Fatal(err)
			}
		}
		if data == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// openLogged opens a model and returns what was logged at Warn.
func openLogged(t *testing.T, cfg llm.Config) (*llm.LLM, string) {
	t.Helper()
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg.DType, cfg.NumPageOverride, cfg.MaxSeqLenOverride = "float32", 256, 256
	l := open(t, cfg)
	return l, log.String()
}

func TestDummyWeight(t *testing.T) {
	bare := variant(t, map[string][]byte{"model.safetensors": nil})
	if _, err := llm.New(t.Context(), llm.Config{Model: bare}); err == nil || !strings.Contains(err.Error(), "no model.safetensors") {
		t.Errorf("a directory without weights opens: %v", err)
	}
	params := llm.DefaultSampling()
	params.MaxTokens, params.IgnoreEOS = 24, true
	reqs := []llm.Request{{TokenIDs: []int32{1, 2, 3}, Params: params}, {TokenIDs: []int32{3, 2, 1}, Params: params}}
	var first [][]int32
	for _, model := range []string{bare, filepath.Join(tinyModel, "f16.gguf"), bare} {
		l, log := openLogged(t, llm.Config{Model: model, DummyWeight: true})
		if log != "" {
			t.Errorf("logged %s", log)
		}
		got := tokens(t, l, reqs)
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("%s: the same names have other values: %s", model, diff)
		}
	}
	if slices.Equal(first[0], first[1]) || slices.Equal(first[0], slices.Repeat(first[0][:1], 24)) {
		t.Errorf("no life in the tokens: %v", first)
	}
	if slices.Equal(first[0], tokens(t, tiny(t, nil), reqs)[0]) {
		t.Error("the weights are the model's")
	}
}

// withTensors adds zero tensors of one float32 to a safetensors file.
func withTensors(t *testing.T, data []byte, names ...string) []byte {
	t.Helper()
	length := int(data[0]) | int(data[1])<<8 | int(data[2])<<16
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(data[8:8+length], &header); err != nil {
		t.Fatal(err)
	}
	values := slices.Clone(data[8+length:])
	for _, name := range names {
		text, err := json.Marshal(map[string]any{"dtype": "F32", "shape": []int{1}, "data_offsets": []int{len(values), len(values) + 4}})
		if err != nil {
			t.Fatal(err)
		}
		header[name], values = text, append(values, 0, 0, 0, 0)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	n := len(text)
	return slices.Concat([]byte{byte(n), byte(n >> 8), byte(n >> 16), 0, 0, 0, 0, 0}, text, values)
}

func TestUnusedTensors(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(tinyModel, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	harmless := "model.layers.0.self_attn.rotary_emb.inv_freq"
	for _, test := range []struct {
		more []string
		want string
	}{
		{nil, ""},
		{[]string{harmless}, ""},
		{[]string{harmless, "vision.c", "vision.b", "vision.a", "vision.e", "vision.d"}, `count=5 first="[vision.a vision.b vision.c vision.d]"`},
	} {
		_, log := openLogged(t, llm.Config{Model: variant(t, map[string][]byte{"model.safetensors": withTensors(t, data, test.more...)})})
		if (log == "") != (test.want == "") || !strings.Contains(log, test.want) {
			t.Errorf("%v: logged %q, want %q", test.more, log, test.want)
		}
	}
}

func TestGenerationConfig(t *testing.T) {
	ptr := func(x float64) *float64 { return &x }
	topK := 20
	for _, test := range []struct {
		text, log string
		want      llm.SamplingDefaults
	}{
		{`{}`, "", llm.SamplingDefaults{}},
		{`{"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0.05,"do_sample":true,"repetition_penalty":1.0}`, "",
			llm.SamplingDefaults{Temperature: ptr(0.6), TopP: ptr(0.95), TopK: &topK, MinP: ptr(0.05), RepetitionPenalty: ptr(1)}},
		{`{"temperature":null,"top_p":0.8}`, "", llm.SamplingDefaults{TopP: ptr(0.8)}},
		{`{"repetition_penalty":1.1}`, "", llm.SamplingDefaults{RepetitionPenalty: ptr(1.1)}},
		{`{"temperature":-1,"top_p":0.8}`, "temperature: must be", llm.SamplingDefaults{}},
	} {
		l, log := openLogged(t, llm.Config{DummyWeight: true, Model: variant(t, map[string][]byte{"generation_config.json": []byte(test.text)})})
		if diff := cmp.Diff(test.want, l.Info().Defaults); diff != "" {
			t.Errorf("%s: %s", test.text, diff)
		}
		if (log == "") != (test.log == "") || !strings.Contains(log, test.log) {
			t.Errorf("%s: logged %q, want %q", test.text, log, test.log)
		}
	}
	bad := variant(t, map[string][]byte{"generation_config.json": []byte(`{"top_k":"many"}`)})
	if _, err := llm.New(t.Context(), llm.Config{Model: bad}); err == nil || !strings.Contains(err.Error(), "generation_config.json") {
		t.Errorf("top_k is a string: %v", err)
	}
}

// TestEndTokens checks which ids end a request: those of generation_config.json,
// else of config.json, else the tokenizer's.
func TestEndTokens(t *testing.T) {
	params := llm.DefaultSampling()
	params.MaxTokens, params.IgnoreEOS = 12, true
	req := llm.Request{TokenIDs: []int32{5, 6, 7}, Params: params}
	free := tokens(t, tiny(t, nil), []llm.Request{req})[0]
	end := free[6]
	text, err := json.Marshal(end)
	if err != nil {
		t.Fatal(err)
	}
	kept := free[:slices.Index(free, end)]
	config, err := os.ReadFile(filepath.Join(tinyModel, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	// eos is config.json with that end token, "" for none.
	eos := func(value string) []byte {
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal(config, &members); err != nil {
			t.Fatal(err)
		}
		delete(members, "eos_token_id")
		if value != "" {
			maps.Copy(members, map[string]json.RawMessage{"eos_token_id": json.RawMessage(value)})
		}
		data, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, test := range []struct {
		name       string
		generation string // "" for no file
		config     []byte
		stops      bool
	}{
		{"list", `{"eos_token_id":[258,` + string(text) + `,3]}`, eos(""), true},
		{"one", `{"eos_token_id":` + string(text) + `}`, eos("258"), true},
		{"generation_config wins", `{"eos_token_id":258}`, eos(string(text)), false},
		{"null, then config", `{"eos_token_id":null}`, eos(string(text)), true},
		{"absent, then config", `{}`, eos("[258," + string(text) + "]"), true},
		{"no file, then config", ``, eos(string(text)), true},
		{"neither, then tokenizer", `{}`, eos(""), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := map[string][]byte{"config.json": test.config, "generation_config.json": []byte(test.generation)}
			if test.generation == "" {
				files["generation_config.json"] = nil
			}
			l, _ := openLogged(t, llm.Config{Model: variant(t, files)})
			req := req
			req.Params.IgnoreEOS = false
			outs, err := l.Generate(t.Context(), []llm.Request{req}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, reason := free, llm.FinishLength
			if test.stops {
				want, reason = kept, llm.FinishStop
			}
			if !slices.Equal(outs[0].TokenIDs, want) || outs[0].Finish != reason {
				t.Errorf("got %v %s, want %v %s", outs[0].TokenIDs, outs[0].Finish, want, reason)
			}
		})
	}
}

// TestChatTemplate: a template of the caller's stands in for the model's.
func TestChatTemplate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(path, []byte(`{% for m in messages %}[{{ m.content }}]{% endfor %}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l := tiny(t, func(c *llm.Config) { c.ChatTemplate = path })
	ids, err := l.EncodeChat([]tokenizer.Message{{Role: "user", Content: "a"}, {Role: "user", Content: "b"}}, tokenizer.TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := l.Tokenizer().Decode(ids, false); err != nil || text != "[a][b]" {
		t.Errorf("got %q, %v", text, err)
	}
	for _, bad := range []string{filepath.Dir(path), path + "x"} {
		_, err := llm.New(t.Context(), llm.Config{Model: tinyModel, ChatTemplate: bad})
		var invalid *llm.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "chat_template" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

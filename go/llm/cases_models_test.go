package llm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
)

// Cases from public bug reports about models and their files, by their numbers.

// freeRun is what the tiny model says if nothing ends it.
func freeRun(t *testing.T, n int) (llm.Request, []int32) {
	t.Helper()
	req := greedy([]int32{5, 6, 7}, n)
	return req, tokens(t, tiny(t, nil), []llm.Request{req})[0]
}

// TestA41_AnyListedEOSStops: each id of a list ends a request with "stop", and is
// in neither its text nor its tokens; with ignore_eos none does.
func TestA41_AnyListedEOSStops(t *testing.T) {
	req, free := freeRun(t, 12)
	for _, at := range []int{1, 4, 8} {
		end := free[at]
		kept := free[:slices.Index(free, end)]
		l, _ := openLogged(t, llm.Config{Model: variant(t, map[string][]byte{
			"generation_config.json": fmt.Appendf(nil, `{"eos_token_id":[257,%d,258]}`, end),
		})})
		stopping := req
		stopping.Params.IgnoreEOS = false
		outs, err := l.Generate(t.Context(), []llm.Request{stopping, req}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := l.Tokenizer().Decode(kept, false)
		if err != nil {
			t.Fatal(err)
		}
		if o := outs[0]; !equal(o.TokenIDs, kept) || o.Finish != llm.FinishStop || o.Text != text {
			t.Errorf("end token %d: tokens %v, want %v; %s; text %q, want %q", end, o.TokenIDs, kept, o.Finish, o.Text, text)
		}
		if o := outs[1]; !equal(o.TokenIDs, free) || o.Finish != llm.FinishLength {
			t.Errorf("ignore_eos: tokens %v, want %v; %s", o.TokenIDs, free, o.Finish)
		}
		s, err := l.Stream(t.Context(), stopping)
		if err != nil {
			t.Fatal(err)
		}
		if ids, _, last := readAll(t, s); !equal(ids, kept) || last.Finish != llm.FinishStop {
			t.Errorf("stream: tokens %v, want %v; %s", ids, kept, last.Finish)
		}
	}
}

// TestA36_SpecialsAreSkipped: special tokens that are generated are in the tokens
// but not in streamed text; added tokens that are not special are in both, and
// ignore_eos goes on behind the end.
func TestA36_SpecialsAreSkipped(t *testing.T) {
	req, free := freeRun(t, 60)
	var bytes []int32 // single bytes, which no merge needs
	for _, id := range free {
		if id >= 128 && id < 256 && !slices.Contains(bytes, id) {
			bytes = append(bytes, id)
		}
	}
	if len(bytes) < 2 {
		t.Fatalf("too few single bytes in %v", free)
	}
	l, _ := openLogged(t, llm.Config{Model: variant(t, map[string][]byte{
		"tokenizer.json":         renamedTokens(t, map[int32]string{bytes[0]: "<think>", bytes[1]: "<|eot|>"}, bytes[1]),
		"generation_config.json": fmt.Appendf(nil, `{"eos_token_id":%d}`, bytes[1]),
	})})
	s, err := l.Stream(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	ids, text, _ := readAll(t, s)
	if !equal(ids, free) {
		t.Errorf("tokens %v, want %v", ids, free)
	}
	if !strings.Contains(text, "<think>") || strings.Contains(text, "<|eot|>") {
		t.Errorf("streamed text %q: want <think>, which is not special, and not <|eot|>", text)
	}
	outs, err := l.Generate(t.Context(), []llm.Request{req}, nil)
	if err != nil || !strings.Contains(outs[0].Text, "<think>") || !strings.Contains(outs[0].Text, "<|eot|>") {
		t.Errorf("Generate keeps special tokens: %v, %v", outs, err)
	}
}

// renamedTokens is the tiny model's tokenizer with added tokens in place of some
// of its own; one is special.
func renamedTokens(t *testing.T, names map[int32]string, special int32) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tinyModel, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	vocab := file["model"].(map[string]any)["vocab"].(map[string]any)
	for old, id := range vocab {
		if name, ok := names[int32(id.(float64))]; ok {
			delete(vocab, old)
			vocab[name] = id
		}
	}
	for id, name := range names {
		file["added_tokens"] = append(file["added_tokens"].([]any), map[string]any{
			"id": id, "content": name, "special": id == special, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	return text
}

// TestA43_PaddingIsNotSampled: ids that have no token are never drawn, in either
// form of the model and with random weights; in a prompt they may be.
func TestA43_PaddingIsNotSampled(t *testing.T) {
	const untied = "../internal/model/testdata/tiny/llama-untied-mha" // 300 rows, 292 tokens
	config, err := os.ReadFile(filepath.Join(tinyModel, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	padded := variant(t, map[string][]byte{
		"config.json":       []byte(strings.Replace(string(config), `"vocab_size": 320`, `"vocab_size": 512`, 1)),
		"model.safetensors": nil,
	})
	for _, test := range []struct {
		cfg                llm.Config
		rows, tokens, more int
	}{
		{llm.Config{Model: untied}, 300, 292, 20000},
		{llm.Config{Model: filepath.Join(untied, "f16.gguf")}, 300, 292, 4000},
		{llm.Config{Model: padded, DummyWeight: true}, 512, 320, 4000},
	} {
		l, _ := openLogged(t, test.cfg)
		if l.Info().VocabSize != test.rows || l.Tokenizer().VocabSize() != test.tokens {
			t.Fatalf("%s: %d rows and %d tokens, want %d and %d", test.cfg.Model, l.Info().VocabSize, l.Tokenizer().VocabSize(), test.rows, test.tokens)
		}
		const each = 200
		reqs := make([]llm.Request, test.more/each)
		for i := range reqs {
			reqs[i] = greedy([]int32{int32(i % 250)}, each)
			reqs[i].Params.Temperature, reqs[i].Params.TopK = 2, -1
		}
		drawn := map[int32]bool{}
		for _, ids := range tokens(t, l, reqs) {
			for _, id := range ids {
				drawn[id] = true
			}
		}
		for id := range drawn {
			if id < 0 || int(id) >= test.tokens {
				t.Errorf("%s: drew %d, which has no token", test.cfg.Model, id)
			}
		}
		if len(drawn) < test.tokens*9/10 {
			t.Errorf("%s: only %d ids were drawn", test.cfg.Model, len(drawn))
		}
		back := tokens(t, l, []llm.Request{greedy([]int32{1, int32(test.rows - 1), 2}, 4)})
		if len(back[0]) != 4 {
			t.Errorf("%s: a prompt with the last row's id gives %v", test.cfg.Model, back)
		}
	}
}

// TestA42_FormsOfATextModel: a GGUF file and a directory of one model give the
// same text, tokens and end from a text.
func TestA42_FormsOfATextModel(t *testing.T) {
	for _, name := range []string{"llama-tied", "qwen3-tied", "qwen2-tied", "ministral3"} {
		dir := "../internal/model/testdata/tiny/" + name
		var first llm.Output
		for _, path := range []string{dir, filepath.Join(dir, "f16.gguf")} {
			l := open(t, llm.Config{Model: path, DType: "float32", NumPageOverride: 128, MaxSeqLenOverride: 128})
			p := llm.DefaultSampling()
			p.MaxTokens = 40
			outs, err := l.Generate(t.Context(), []llm.Request{{Text: "Once upon a time", Params: p}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			out := llm.Output{Text: outs[0].Text, TokenIDs: outs[0].TokenIDs, Finish: outs[0].Finish}
			if path == dir {
				first = out
			} else if diff := cmp.Diff(first, out); diff != "" {
				t.Errorf("%s (-safetensors +GGUF):\n%s", name, diff)
			}
		}
	}
}

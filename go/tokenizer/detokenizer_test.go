package tokenizer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// join feeds ids one by one and checks that each piece is valid UTF-8.
func join(t interface{ Fatalf(string, ...any) }, tok *Tokenizer, ids []int32, skip bool) string {
	d := tok.NewDetokenizer(skip)
	var out strings.Builder
	for i, id := range ids {
		piece := d.Push(id)
		if !utf8.ValidString(piece) {
			t.Fatalf("Push of id %d of %v returned %q, not UTF-8", i, ids, piece)
		}
		out.WriteString(piece)
	}
	out.WriteString(d.Flush())
	return out.String()
}

// byteTokens gives the id of each single byte.
func byteTokens(tok *Tokenizer) map[byte]int32 {
	ids := map[byte]int32{}
	for id := range int32(tok.VocabSize()) {
		if b := tok.TokenBytes(id); len(b) == 1 {
			if _, ok := ids[b[0]]; !ok {
				ids[b[0]] = id
			}
		}
	}
	return ids
}

// allKinds returns one tokenizer for each kind of decoder.
func allKinds(t testing.TB) map[string]*Tokenizer {
	dir, err := Open("testdata/llama")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return map[string]*Tokenizer{
		"byte level":    fromVocabT(t, smollm2Vocab(t, "smollm")),
		"sentencepiece": fromVocabT(t, llamaVocab(t)),
		"directory":     dir,
	}
}

func TestA35_DetokenizerEqualsDecode(t *testing.T) {
	for name, tok := range allKinds(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				// Low ids hold the special tokens and the single bytes.
				id := rapid.OneOf(rapid.Int32Range(-2, 300), rapid.Int32Range(0, int32(tok.VocabSize())))
				ids := rapid.SliceOfN(id, 0, 40).Draw(r, "ids")
				skip := rapid.Bool().Draw(r, "skip")
				want, err := tok.Decode(ids, skip)
				if err != nil {
					r.Fatal(err)
				}
				if got := join(r, tok, ids, skip); got != want {
					r.Fatalf("joined %q, decoded %q", got, want)
				}
			})
		})
	}
}

func TestBytesOfText(t *testing.T) {
	for name, tok := range allKinds(t) {
		bytes := byteTokens(tok)
		t.Run(name, func(t *testing.T) {
			for _, text := range []string{"👩‍🚀🇯🇵 漢字 한국어 é", "\uFFFD", "a\uFFFDb", "x"} {
				var ids []int32
				for _, b := range []byte(text) {
					id, ok := bytes[b]
					if !ok {
						t.Skipf("the vocabulary has no token for the byte %#x", b)
					}
					ids = append(ids, id)
				}
				if got := join(t, tok, ids, true); got != text {
					t.Errorf("%q, a token for each byte, gives %q", text, got)
				}
			}
		})
	}
}

// A character comes out with the token that completes it, and a true U+FFFD
// does not hold anything back.
func TestTextIsNotHeldBack(t *testing.T) {
	tok := fromVocabT(t, smollm2Vocab(t, "smollm"))
	single := byteTokens(tok)
	d := tok.NewDetokenizer(true)
	for i, step := range []struct {
		b    byte
		want string
	}{
		{0xE6, ""}, {0xBC, ""}, {0xA2, "漢"},
		{0xEF, ""}, {0xBF, ""}, {0xBD, "\uFFFD"},
		{'a', "a"}, {0xE6, ""}, {'b', "\uFFFDb"}, {0xBC, "\uFFFD"}, {0xF0, ""}, {0x9F, ""},
	} {
		id, ok := single[step.b]
		if !ok {
			t.Fatalf("the vocabulary has no token for the byte %#x", step.b)
		}
		if got := d.Push(id); got != step.want {
			t.Errorf("step %d: Push = %q, want %q", i, got, step.want)
		}
	}
	if got := d.Flush(); got != "\uFFFD" {
		t.Errorf("Flush = %q, want one U+FFFD", got)
	}
	if got := d.Flush(); got != "" {
		t.Errorf("a second Flush = %q, want none", got)
	}
}

func TestA35_SentencePieceSpaces(t *testing.T) {
	tok := fromVocabT(t, llamaVocab(t))
	// As in transformers, a space at the beginning takes the place of the one
	// that encoding adds and decoding drops.
	for text, want := range map[string]string{
		"one two  three": "one two  three", "f(x):\n\treturn ' .'\n": "f(x):\n\treturn ' .'\n", "漢 x": "漢 x",
		" begins with a space": "begins with a space", "  two": " two",
	} {
		ids, err := tok.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := join(t, tok, ids, true); got != want {
			t.Errorf("%q comes back as %q, want %q", text, got, want)
		}
	}
}

func TestDecoderForms(t *testing.T) {
	for name, c := range map[string]struct {
		spec   string
		pieces []string
		want   string
	}{
		"none":             {``, []string{"a", "b"}, "a b"},
		"null":             {`null`, []string{"a", "b", "c"}, "a b c"},
		"metaspace":        {`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`, []string{"▁a", "▁b"}, "a b"},
		"metaspace, never": {`{"type":"Metaspace","replacement":"▁","prepend_scheme":"never"}`, []string{"▁a", "▁b"}, " a b"},
		"metaspace, old":   {`{"type":"Metaspace","replacement":"▁","add_prefix_space":false}`, []string{"▁a", "▁b"}, " a b"},
		"strip each":       {`{"type":"Strip","content":"x","start":2,"stop":0}`, []string{"xxxa", "xb", "ax"}, "xabax"},
		"strip all": {`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":"x","start":2,"stop":0}]}`,
			[]string{"x", "", "xx", "xb"}, "xxb"},
		"byte fallback": {`{"type":"ByteFallback"}`, []string{"<0xE6>", "<0xBC>", "<0xA2>", "a", "<0xE6>", "<0x41>", "<0xGG>", "<0x+1>"}, "漢a\uFFFD\uFFFD<0xGG>\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := newPipeline([]byte(c.spec))
			if err != nil {
				t.Fatal(err)
			}
			r := p.start()
			var got strings.Builder
			for _, piece := range c.pieces {
				got.WriteString(r.push(piece))
			}
			got.WriteString(r.flush())
			if got.String() != c.want {
				t.Errorf("got %q, want %q", got.String(), c.want)
			}
		})
	}
}

// Any split of any bytes gives what one conversion of all of them gives.
func TestUTF8Splits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		part := rapid.OneOf(
			rapid.Custom(func(r *rapid.T) []byte { return []byte(rapid.StringN(0, 3, -1).Draw(r, "text")) }),
			rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 0x80, 0xBF, 0xC2, 0xE0, 0xE4, 0xED, 0xA0, 0xEF, 0xF0, 0x90, 0xF4, 0xFF}), 0, 4))
		parts := rapid.SliceOf(part).Draw(r, "parts")
		var whole, split utf8Buffer
		all := bytes.Join(parts, nil)
		want := whole.push(all) + whole.flush()
		var got strings.Builder
		for _, p := range parts {
			got.WriteString(split.push(p))
		}
		got.WriteString(split.flush())
		if got.String() != want {
			r.Fatalf("in parts %q, as a whole %q", got.String(), want)
		}
		if utf8.Valid(all) && want != string(all) {
			r.Fatalf("valid text %q became %q", all, want)
		}
	})
}

func FuzzDetokenizer(f *testing.F) {
	toks := allKinds(f)
	for _, seed := range []string{"", "\x00\x01\x02", "abc\xff\xfe", "\x10\x03\x00\x03\x01\x03\x02"} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		var ids []int32
		for i := 0; i+1 < len(data); i += 2 {
			ids = append(ids, int32(data[i])<<8|int32(data[i+1]))
		}
		for name, tok := range toks {
			want, err := tok.Decode(ids, skip)
			if err != nil {
				t.Fatal(err)
			}
			if got := join(t, tok, ids, skip); got != want {
				t.Errorf("%s: joined %q, decoded %q", name, got, want)
			}
		}
	})
}

func FuzzRenderChat(f *testing.F) {
	var toks []*Tokenizer
	for _, tmpl := range load[chatFixture](f, "chat.json.gz").Templates {
		toks = append(toks, chatOnly(tmpl.Source, map[string]string{"bos_token": tmpl.BOS, "eos_token": tmpl.EOS}))
	}
	f.Add("user", "hi", "tool_calls", `[{"function":{"name":"f","arguments":{"a":1}}}]`, "user", "again")
	f.Add("", "\x00\xff", "tool_calls", `3`, "tool", "<think></think>")
	f.Add("assistant", "</think>", "content", `null`, "assistant", "{{ x }}")
	f.Fuzz(func(t *testing.T, role, content, name, extra, role2, content2 string) {
		msgs := []Message{
			{Role: role, Content: content, Extra: map[string]any{name: json.RawMessage(extra)}},
			{Role: role2, Content: content2},
		}
		for _, tok := range toks {
			// Any error is fine, a panic is not.
			_, _ = tok.RenderChat(msgs, TemplateOptions{Tools: []any{extra}, AddGenerationPrompt: true})
		}
	})
}

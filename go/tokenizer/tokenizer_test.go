package tokenizer

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSmolLM2IDs(t *testing.T) {
	golden := load[idsFixture](t, "smollm2_ids.json.gz")
	if len(golden.Texts) < 200 {
		t.Fatalf("the fixture has %d texts, want at least 200", len(golden.Texts))
	}
	for _, pre := range []string{"smollm", "gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o"} {
		t.Run(pre, func(t *testing.T) {
			tok := fromVocabT(t, smollm2Vocab(t, pre))
			if n := tok.VocabSize(); n != 49152 {
				t.Errorf("VocabSize() = %d, want 49152", n)
			}
			compareEncode(t, tok, golden.Texts, golden.IDs[pre], false)
			if pre == "smollm" {
				compareDecode(t, tok, golden)
			}
		})
	}
}

func compareEncode(t *testing.T, tok *Tokenizer, texts []string, want [][]int32, special bool) {
	t.Helper()
	if len(want) != len(texts) {
		t.Fatalf("%d texts and %d lists of ids", len(texts), len(want))
	}
	for i, text := range texts {
		got, err := tok.Encode(text, special)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want[i], got); d != "" {
			t.Errorf("Encode(%q) (-want +got):\n%s", text, d)
		}
	}
}

func compareDecode(t *testing.T, tok *Tokenizer, golden idsFixture) {
	t.Helper()
	if len(golden.Decode) == 0 {
		t.Fatal("the fixture has no sequences to decode")
	}
	for _, c := range golden.Decode {
		for skip, want := range map[bool]string{false: c.Text, true: c.Skipped} {
			if got, err := tok.Decode(c.IDs, skip); err != nil || got != want {
				t.Errorf("Decode(%v, %v) = %q, %v, want %q", c.IDs, skip, got, err, want)
			}
		}
	}
}

func TestSentencePieceIDs(t *testing.T) {
	golden := load[idsFixture](t, "llama_ids.json.gz")
	tok := fromVocabT(t, llamaVocab(t))
	compareEncode(t, tok, golden.Texts, golden.IDs["plain"], false)
	compareEncode(t, tok, golden.Texts, golden.IDs["special"], true)
	compareDecode(t, tok, golden)
}

func TestVocabErrors(t *testing.T) {
	good := func() Vocab {
		return Vocab{Model: "gpt2", Pre: "gpt-2", Tokens: []string{"a", "b", "ab"}, Merges: []string{"a b"}, BOS: -1, EOS: -1, UNK: -1, PAD: -1}
	}
	if tok, err := FromVocab(good()); err != nil {
		t.Fatal(err)
	} else {
		tok.Close()
	}
	for name, c := range map[string]struct {
		change func(*Vocab)
		want   string
	}{
		"kind":          {func(v *Vocab) { v.Pre = "tekken9" }, `"tekken9" is not known; known are deepseek-r1-qwen, default, gpt-2, gpt-4o`},
		"model":         {func(v *Vocab) { v.Model = "bert" }, `"bert" is not supported`},
		"no tokens":     {func(v *Vocab) { v.Tokens = nil }, "it has 0 tokens"},
		"types":         {func(v *Vocab) { v.Types = []int32{1} }, "1 token types for 3 tokens"},
		"bos":           {func(v *Vocab) { v.BOS = 3 }, "the BOS id is 3"},
		"merge form":    {func(v *Vocab) { v.Merges = []string{"ab"} }, `merge 0, "ab"`},
		"merge token":   {func(v *Vocab) { v.Merges = []string{"b a"} }, `needs the token "ba"`},
		"not utf8":      {func(v *Vocab) { v.Tokens[1] = "\xff" }, "is not UTF-8"},
		"llama, scores": {func(v *Vocab) { v.Model, v.Merges = "llama", nil }, "0 scores for 3 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			v := good()
			c.change(&v)
			if _, err := FromVocab(v); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("FromVocab: %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestTokenBytes(t *testing.T) {
	smol, llama := fromVocabT(t, smollm2Vocab(t, "smollm")), fromVocabT(t, llamaVocab(t))
	for _, c := range []struct {
		name string
		tok  *Tokenizer
		text string // spelled as in the vocabulary
		want string
	}{
		{"byte level", smol, "Ġthe", " the"},
		{"control byte", smol, "Ċ", "\n"},
		{"half a character", smol, "ã", "\xe3"},
		{"special", smol, "<|im_end|>", "<|im_end|>"},
		{"byte token", llama, "<0xE4>", "\xe4"},
		{"space mark", llama, "▁t", " t"},
	} {
		id := int32(-1)
		for i, tok := range c.tok.tokens {
			if tok.text == c.text {
				id = int32(i)
			}
		}
		if got := string(c.tok.TokenBytes(id)); got != c.want {
			t.Errorf("%s: TokenBytes(%d) = %q, want %q", c.name, id, got, c.want)
		}
	}
	for _, id := range []int32{-1, int32(smol.VocabSize()), 1 << 30} {
		if b := smol.TokenBytes(id); len(b) != 0 {
			t.Errorf("TokenBytes(%d) = %q, want none", id, b)
		}
		if text, err := smol.Decode([]int32{id, 28120, id}, false); err != nil || text != string(smol.TokenBytes(28120)) {
			t.Errorf("Decode with the id %d, which has no token: %q, %v", id, text, err)
		}
		if smol.IsSpecial(id) {
			t.Errorf("IsSpecial(%d) = true", id)
		}
	}
	if !smol.IsSpecial(2) || smol.IsSpecial(28120) {
		t.Error("IsSpecial is wrong for 2 or 28120")
	}
}

func TestEncodeOddText(t *testing.T) {
	// This vocabulary has a token for each byte.
	tok := fromVocabT(t, llamaVocab(t))
	for _, text := range []string{"", "a\x00b", "\x00", nulMark, escapeMark, escapedNUL, "x" + escapedEsc + "\x00\uFDD1" + nulMark, "\x00" + escapeMark + "\x00\uFDD0\x00"} {
		ids, err := tok.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tok.Decode(ids, false); err != nil || got != text {
			t.Errorf("%q comes back as %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"a\xffb":           "a\uFFFDb",
		"\xe4\xbd":         "\uFFFD",
		"\xe4\xbdx":        "\uFFFDx",
		"\xf0\x9f\x98\xe4": "\uFFFD\uFFFD",
		"\xed\xa0\x80":     "\uFFFD\uFFFD\uFFFD",
	} {
		got, _ := tok.Encode(text, false)
		ids, _ := tok.Encode(want, false)
		if d := cmp.Diff(ids, got); d != "" {
			t.Errorf("Encode(%q) differs from that of %q (-want +got):\n%s", text, want, d)
		}
	}
	if _, err := tok.Encode(strings.Repeat("a", MaxTextBytes+1), false); err == nil {
		t.Error("Encode takes a text above the limit")
	}
}

func TestA37_Closed(t *testing.T) {
	tok := fromVocabT(t, smollm2Vocab(t, "smollm"))
	d := tok.NewDetokenizer(false)
	for range 2 {
		if err := tok.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tok.Encode("a", false); !errors.Is(err, ErrClosed) {
		t.Errorf("Encode after Close: %v, want ErrClosed", err)
	}
	if _, err := tok.Decode([]int32{28}, false); !errors.Is(err, ErrClosed) {
		t.Errorf("Decode after Close: %v, want ErrClosed", err)
	}
	if _, err := tok.EncodeChat([]Message{{Role: "user"}}, TemplateOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("EncodeChat after Close: %v, want ErrClosed", err)
	}
	if got := d.Push(2); got != "<|im_end|>" {
		t.Errorf("Push after Close = %q", got)
	}
}

func TestA37_ConcurrentUseAndClose(t *testing.T) {
	tok := fromVocabT(t, smollm2Vocab(t, "smollm"))
	want, err := tok.Encode("Hello, 世界 123", false)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for range 50 {
				got, err := tok.Encode("Hello, 世界 123", false)
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || !cmp.Equal(want, got) {
					t.Errorf("worker %d: %v, %v", worker, got, err)
				}
				if _, err := tok.Decode(got, true); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() { tok.Close() })
	wg.Wait()
}

// The versions in the cgo lines decide which archive is linked.
func TestLinkedVersion(t *testing.T) {
	version := regexp.MustCompile(`daulet/tokenizers v(\S+)`).FindStringSubmatch(readString(t, "../go.mod"))
	if version == nil {
		t.Fatal("go.mod does not name the module")
	}
	rust := regexp.MustCompile(`(?m)^llguidance=(\S+)$`).FindStringSubmatch(readString(t, "../../scripts/rust-lib.sh"))
	if rust == nil {
		t.Fatal("rust-lib.sh does not name the version of llguidance")
	}
	for _, file := range []string{"link.go", "../internal/grammar/link.go"} {
		path := "build/lib/tokenizers-" + version[1] + "-llguidance-" + rust[1]
		if !regexp.MustCompile(regexp.QuoteMeta(path) + `( |\n)`).MatchString(readString(t, file)) {
			t.Errorf("%s does not link %s, the versions in go.mod and rust-lib.sh", file, path)
		}
	}
}

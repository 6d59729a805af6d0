package tokens

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/mockserver"
)

const llama = "../../../go/tokenizer/testdata/llama"

func TestLocal(t *testing.T) {
	for _, path := range []string{llama, filepath.Join(llama, "tokenizer.json")} {
		tok, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := tok.Encode("hello", false)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := tok.Encode("hello", true)
		if err != nil || len(whole)-len(plain) != tok.NumSpecial() {
			t.Errorf("%d ids, %d with special tokens, want %d more (%v)", len(plain), len(whole), tok.NumSpecial(), err)
		}
		if text, err := tok.Decode(plain); err != nil || strings.TrimSpace(text) != "hello" {
			t.Errorf("%q, %v", text, err)
		}
		if tok.VocabSize() < 1 || tok.AllTokens() < tok.VocabSize() {
			t.Errorf("%d ids, %d with added ones", tok.VocabSize(), tok.AllTokens())
		}
		if err := tok.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a directory without a tokenizer: no error")
	}
}

func TestBaseVocab(t *testing.T) {
	for text, want := range map[string]int{
		`{"model":{"vocab":{"a":0,"b":1}}}`:                 2,
		`{"model":{"vocab":[["a",-1.5],["b",-2],["c",0]]}}`: 3,
		`{"model":{}}`: 0, `{`: 0, `{"model":{"vocab":3}}`: 0,
	} {
		path := filepath.Join(t.TempDir(), "tokenizer.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := baseVocab(path); got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestFind(t *testing.T) {
	hub := t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	snapshot := filepath.Join(hub, "models--org--name", "snapshots", "abc")
	if err := os.MkdirAll(snapshot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(snapshot, "tokenizer.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"org/name": snapshot, llama: llama, filepath.Join(llama, "tokenizer.json"): llama, "org/other": "", "": ""} {
		if got := Find(name); got != want {
			t.Errorf("Find(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestRemote(t *testing.T) {
	server := httptest.NewServer(mockserver.New(mockserver.Config{}))
	defer server.Close()
	client := loadgen.NewHTTP(loadgen.HTTPOptions{})
	defer client.Close()
	tok, err := Dial(t.Context(), client, server.URL, "m", 100)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("t5 t7 abc", false)
	if err != nil || !slices.Equal(ids, []int32{5, 7, 3}) {
		t.Errorf("%v, %v", ids, err)
	}
	if text, err := tok.Decode(ids); err != nil || text != "t5 t7 t3" {
		t.Errorf("%q, %v", text, err)
	}
	if tok.VocabSize() != 100 || tok.NumSpecial() != 0 {
		t.Errorf("%d ids, %d special", tok.VocabSize(), tok.NumSpecial())
	}
	if _, err := tok.Template("x"); err == nil {
		t.Error("a template from a server: no error")
	}
	none := httptest.NewServer(nil)
	defer none.Close()
	if _, err := Dial(t.Context(), client, none.URL, "m", 100); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a server without /tokenize: %v", err)
	}
}

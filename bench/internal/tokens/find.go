package tokens

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
)

// Tokenizer is a Local or a Remote one.
type Tokenizer interface {
	Encode(text string, special bool) ([]int32, error)
	Decode(ids []int32) (string, error)
	VocabSize() int // without added tokens
	AllTokens() int // with them
	NumSpecial() int
	Template(text string) (string, error)
	Source() string // where the tokens come from, in words
	Close() error
}

// Choose returns the tokenizer of that name on this machine, else the server's,
// else nil: lengths then come from the server's counts.
func Choose(ctx context.Context, client *loadgen.HTTP, name, base, model string, vocab int) (Tokenizer, error) {
	if dir := Find(name); dir != "" {
		return Open(dir)
	}
	remote, err := Dial(ctx, client, base, model, vocab)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // a server without /tokenize is no error
	}
	return remote, nil
}

// Find returns the directory of a tokenizer: name itself if it is one, or what
// Hugging Face's or this project's cache holds under that name. "" if nothing does.
func Find(name string) string {
	if name == "" {
		return ""
	}
	candidates := []string{name, filepath.Join(cacheDir(), "minisgl", "models", filepath.Base(name))}
	hub := os.Getenv("HF_HUB_CACHE")
	if hub == "" {
		hub = filepath.Join(cacheDir(), "huggingface", "hub")
	}
	snapshots, _ := filepath.Glob(filepath.Join(hub, "models--"+strings.ReplaceAll(name, "/", "--"), "snapshots", "*"))
	for _, dir := range append(candidates, snapshots...) {
		if filepath.Base(dir) == definition {
			dir = filepath.Dir(dir)
		}
		if info, err := os.Stat(filepath.Join(dir, definition)); err == nil && info.Mode().IsRegular() {
			return dir
		}
	}
	return ""
}

func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return os.TempDir()
	}
	return dir
}

package tokens

import (
	"os"
	"path/filepath"
	"strings"
)

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

package weights

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CacheEnv names the environment variable that holds the folder for fetched models; without it they are kept in the
// user's cache folder.
const CacheEnv = "MINISGL_CACHE"

// Resolve turns what a user calls a model into a path for Open: an existing local directory or .gguf file ("~" stands
// for the home folder), or the name of a known model, which is fetched on first use and kept. Lines for the user go to
// progress. An error lists what is accepted.
func Resolve(ctx context.Context, model string, progress io.Writer) (path string, err error) {
	local, err := expandHome(model)
	if err != nil {
		return "", fmt.Errorf("weights: model %q: %w", model, err)
	}
	if info, err := os.Stat(local); err == nil {
		if info.IsDir() || strings.HasSuffix(local, ".gguf") {
			return local, nil
		}
		return "", fmt.Errorf("weights: model %q is a file but not a .gguf file: %s", model, accepted())
	}
	known, ok := catalog[model]
	if !ok {
		return "", fmt.Errorf("weights: model %q is neither a path that exists nor a known name: %s: %w", model, accepted(), fs.ErrNotExist)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", fmt.Errorf("weights: model %q: %w", model, err)
	}
	path, err = known.fetch(ctx, filepath.Join(cache, "models", model), progress)
	if err != nil {
		return "", fmt.Errorf("weights: fetch model %q: %w", model, err)
	}
	return path, nil
}

func accepted() string {
	return "accepted are a Hugging Face directory, a .gguf file, or one of " + strings.Join(Known(), ", ")
}

// expandHome replaces a leading "~" by the home folder.
func expandHome(path string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, path[1:]), nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return expandHome(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder, set %s to one: %w", CacheEnv, err)
	}
	return filepath.Join(dir, "minisgl"), nil
}

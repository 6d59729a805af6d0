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

// The hubs that Ref.Source names.
const (
	HuggingFace = "huggingface"
	ModelScope  = "modelscope"
)

// Ref is what a user calls a model.
type Ref struct {
	Model     string // a path, a known name, org/name[@revision] or org/name/file.gguf[@revision]
	Source    string // the hub of org/name: HuggingFace (also ""), ModelScope
	Update    bool   // ask the hub for the revision's newest commit, also if one is in the cache
	NoWeights bool   // the configuration and the tokenizer are enough, see OpenBare
}

// Resolve turns what a user calls a model into a path for Open: an existing local directory or .gguf file ("~" stands
// for the home folder), the name of a known model, or that of a model of a hub. The latter two are fetched on first
// use and kept; what is kept is used without network. Lines for the user go to progress. An error lists what is
// accepted.
func Resolve(ctx context.Context, ref Ref, progress io.Writer) (path string, err error) {
	local, err := expandHome(ref.Model)
	if err != nil {
		return "", fmt.Errorf("weights: model %q: %w", ref.Model, err)
	}
	if info, err := os.Stat(local); err == nil {
		if info.IsDir() || strings.HasSuffix(local, ".gguf") {
			return local, nil
		}
		return "", fmt.Errorf("weights: model %q is a file but not a .gguf file: %s", ref.Model, accepted())
	}
	if known, ok := catalog[ref.Model]; ok {
		path, err = known.fetchCached(ctx, ref.Model, progress)
	} else {
		path, err = resolveHub(ctx, ref, progress)
	}
	if err != nil {
		return "", fmt.Errorf("weights: model %q: %w", ref.Model, err)
	}
	return path, nil
}

// resolveHub resolves the name of a model of a hub.
func resolveHub(ctx context.Context, ref Ref, progress io.Writer) (string, error) {
	name, ok, err := parseHubName(ref.Model)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("it is neither a path that exists nor a known name: %s: %w", accepted(), fs.ErrNotExist)
	}
	var f *hubFetch
	switch ref.Source {
	case HuggingFace, "":
		f, err = openHuggingFace(name, progress)
	case ModelScope:
		if own := modelScopeOwn(name); own != "" && name.revision == "" && !ref.Update {
			return own, nil
		}
		var cache string
		if cache, err = cacheDir(); err == nil {
			f, err = openModelScope(name, filepath.Join(cache, ModelScope), progress)
		}
	default:
		return "", fmt.Errorf("there is no hub %q, only %s and %s", ref.Source, HuggingFace, ModelScope)
	}
	if err != nil {
		return "", err
	}
	defer f.client.close()
	f.noWeights, f.update = ref.NoWeights, ref.Update
	path, err := f.run(ctx, hubOffline())
	if err != nil {
		return "", fmt.Errorf("it is no path that exists, and as a hub's model: %w", err)
	}
	return path, nil
}

func accepted() string {
	return "accepted are a Hugging Face directory, a .gguf file, a hub's org/name, or one of " + strings.Join(Known(), ", ")
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

package weights

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	defaultModelScope  = "www.modelscope.cn"
	modelScopeRevision = "master"
)

// modelScope is the hub of modelscope.cn. Its listing holds sizes and checksums.
type modelScope struct {
	endpoint string
	client   *client
	revision string
	files    map[string]remoteFile
}

// openModelScope prepares to fetch a model into cache. The host is that of the variable that Python's modelscope
// reads; a URL is taken too.
func openModelScope(name hubName, cache string, progress io.Writer) (*hubFetch, error) {
	endpoint := cmp.Or(strings.TrimRight(os.Getenv("MODELSCOPE_DOMAIN"), "/"), defaultModelScope)
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	if err := checkEndpoint("MODELSCOPE_DOMAIN", endpoint); err != nil {
		return nil, err
	}
	name.revision = cmp.Or(name.revision, modelScopeRevision)
	c := newClient("", progress)
	return &hubFetch{
		hub: &modelScope{endpoint: endpoint, client: c}, client: c, repo: openHubRepo(cache, name.id), name: name, progress: progress,
	}, nil
}

func (h *modelScope) list(ctx context.Context, id, revision string) (listing, error) {
	var said struct {
		Code int
		Data struct {
			Files []struct {
				Path, Type, Sha256 string
				Size               int64
			}
		}
		Message string
	}
	address := fmt.Sprintf("%s/api/v1/models/%s/repo/files?Recursive=true&Revision=%s", h.endpoint, id, url.QueryEscape(revision))
	if err := h.client.getJSON(ctx, address, maxListingBytes, &said); err != nil {
		return listing{}, err
	}
	if said.Code != http.StatusOK {
		return listing{}, &statusError{url: h.endpoint, status: said.Code, message: brief(said.Message)}
	}
	all := listing{}
	h.revision, h.files = revision, make(map[string]remoteFile)
	var lines []string
	for _, file := range said.Data.Files {
		if file.Type == "tree" {
			continue
		}
		all.files = append(all.files, file.Path)
		h.files[file.Path] = remoteFile{url: h.fileURL(id, file.Path), size: file.Size, etag: strings.ToLower(file.Sha256)}
		lines = append(lines, file.Path+"\x00"+file.Sha256)
	}
	all.commit = digest(lines)
	return all, nil
}

// digest stands for the commit, which the listing doesn't name: it is the same as long as all files are.
func digest(lines []string) string {
	slices.Sort(lines)
	sum := sha1.Sum([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:])
}

func (h *modelScope) fileURL(id, file string) string {
	return fmt.Sprintf("%s/api/v1/models/%s/repo?Revision=%s&FilePath=%s", h.endpoint, id, url.QueryEscape(h.revision), url.QueryEscape(file))
}

func (h *modelScope) stat(_ context.Context, _, _, file string) (remoteFile, error) {
	stat, ok := h.files[file]
	if !ok || stat.size < 0 || len(stat.etag) != 64 {
		return stat, errors.New("the hub gives no size and SHA-256 for it")
	}
	return stat, nil
}

func (h *modelScope) explain(name hubName, err error) error {
	var status *statusError
	if errors.As(err, &status) && (status.status == http.StatusNotFound || status.status == http.StatusForbidden) {
		return notFoundf("%s has no public model %s with revision %q: check the name: %w", h.endpoint, name.id, name.revision, err)
	}
	return err
}

// modelScopeOwn returns the folder to which Python's modelscope has fetched a model, "" if there is none that can be
// loaded. It keeps plain files and writes "." as "___".
func modelScopeOwn(name hubName) string {
	root := os.Getenv("MODELSCOPE_CACHE")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		root = filepath.Join(home, ".cache", "modelscope", "hub")
	}
	org, model, _ := strings.Cut(name.id, "/")
	for _, folder := range []string{model, strings.ReplaceAll(model, ".", "___")} {
		dir := filepath.Join(root, "models", org, folder)
		if name.file != "" && exists(filepath.Join(dir, filepath.FromSlash(name.file))) {
			return filepath.Join(dir, filepath.FromSlash(name.file))
		}
		if name.file == "" && exists(filepath.Join(dir, configFile)) && weightsIn(dir) == nil {
			return dir
		}
	}
	return ""
}

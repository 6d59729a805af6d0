package weights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	defaultEndpoint = "https://huggingface.co"
	maxListingBytes = 64 << 20

	linkedETag = "X-Linked-Etag" // of the file behind a redirect
	linkedSize = "X-Linked-Size"
)

// huggingFace is the Hugging Face hub, or a mirror that speaks its protocol.
type huggingFace struct {
	endpoint string
	client   *client
}

// openHuggingFace prepares to fetch a model, by the variables that huggingface_hub reads.
func openHuggingFace(name hubName, progress io.Writer) (*hubFetch, error) {
	endpoint := cmp.Or(strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"), defaultEndpoint)
	if err := checkEndpoint("HF_ENDPOINT", endpoint); err != nil {
		return nil, err
	}
	token, err := hubToken()
	if err != nil {
		return nil, err
	}
	cache, err := hubCacheDir()
	if err != nil {
		return nil, err
	}
	name.revision = cmp.Or(name.revision, "main")
	c := newClient(token, progress)
	return &hubFetch{
		hub: &huggingFace{endpoint: endpoint, client: c}, client: c, repo: openHubRepo(cache, name.id), name: name, progress: progress,
	}, nil
}

func checkEndpoint(variable, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s must be the URL of a hub, such as %s", variable, defaultEndpoint)
	}
	return nil
}

// hubToken returns the user's token for the hub, "" if there is none.
func hubToken() (string, error) {
	for _, key := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := strings.TrimSpace(os.Getenv(key)); token != "" {
			return token, nil
		}
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if file == "" {
		home, err := hubHome()
		if err != nil {
			return "", err
		}
		file = filepath.Join(home, "token")
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// hubOffline reports whether the user forbids to ask the hub.
func hubOffline() bool {
	for _, key := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		switch strings.ToLower(os.Getenv(key)) {
		case "1", "true", "yes", "on":
			return true
		}
	}
	return false
}

func (h *huggingFace) list(ctx context.Context, id, revision string) (listing, error) {
	var said struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	address := fmt.Sprintf("%s/api/models/%s/revision/%s", h.endpoint, id, url.PathEscape(revision))
	if err := h.client.getJSON(ctx, address, maxListingBytes, &said); err != nil {
		return listing{}, err
	}
	all := listing{commit: said.SHA}
	for _, file := range said.Siblings {
		all.files = append(all.files, file.Name)
	}
	return all, nil
}

func (h *huggingFace) stat(ctx context.Context, id, commit, file string) (remoteFile, error) {
	address := fmt.Sprintf("%s/%s/resolve/%s/%s", h.endpoint, id, commit, escapePath(file))
	header, err := h.client.head(ctx, address)
	if err != nil {
		return remoteFile{}, err
	}
	if got := header("X-Repo-Commit"); got != "" && got != commit {
		return remoteFile{}, fmt.Errorf("the hub answers with commit %q, not %s", brief(got), commit)
	}
	etag, length := header(linkedETag), header(linkedSize)
	if etag == "" {
		etag = header("ETag")
	}
	if length == "" {
		length = header("Content-Length")
	}
	size, err := strconv.ParseInt(length, 10, 64)
	if err != nil || size < 0 {
		return remoteFile{}, fmt.Errorf("the hub gives no size (%q)", brief(length))
	}
	return remoteFile{url: address, size: size, etag: strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)}, nil
}

// escapePath escapes a file's name but for its slashes.
func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

// explain follows the hub's error codes. It answers 401 for a model that doesn't exist, unless asked with a token.
func (h *huggingFace) explain(name hubName, err error) error {
	var status *statusError
	if !errors.As(err, &status) {
		return err
	}
	page := h.endpoint + "/" + name.id
	switch {
	case status.code == "GatedRepo" && h.client.token == "":
		return fmt.Errorf("%s is gated: accept its terms at %s and set HF_TOKEN to a token of your account: %w", name.id, page, err)
	case status.code == "GatedRepo":
		return fmt.Errorf("%s is gated, and your token's account may not read it: accept its terms at %s: %w", name.id, page, err)
	case status.code == "RevisionNotFound":
		return notFoundf("%s has no revision %q; %s lists them: %w", name.id, name.revision, page+"/refs", err)
	case status.code == "EntryNotFound":
		return notFoundf("%s at revision %q lacks a file that it lists: %w", name.id, name.revision, err)
	case status.status == http.StatusUnauthorized && h.client.token != "" && status.code != "RepoNotFound":
		return fmt.Errorf("%s refuses your token (HF_TOKEN, or the file of `hf auth login`): %w", h.endpoint, err)
	case status.status == http.StatusUnauthorized, status.status == http.StatusNotFound:
		return notFoundf("%s knows no model %s that you may read: check the name; for a private model set HF_TOKEN: %w", h.endpoint, name.id, err)
	case status.status == http.StatusForbidden:
		return fmt.Errorf("%s forbids access to %s: check the rights of your token (HF_TOKEN): %w", h.endpoint, name.id, err)
	}
	return err
}

package weights

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	testCommit  = "0123456789abcdef0123456789abcdef01234567"
	otherCommit = "fedcba9876543210fedcba9876543210fedcba98"
	testID      = "org/model-1.5"
)

// testHub speaks the hub's protocol for one repository: a listing, files of its own with git's ETags, and large files
// (safetensors, gguf) that lie on another host, as on the hub.
type testHub struct {
	t        *testing.T
	cache    string
	files    map[string][]byte
	commit   string
	token    string                                                             // that requests must bring, if not ""
	handle   func(w http.ResponseWriter, r *http.Request) bool                  // if not nil, may answer instead
	cdn      func(w http.ResponseWriter, r *http.Request, contents []byte) bool // likewise, for large files
	siblings []string                                                           // to list instead of files

	mu       sync.Mutex
	requests []string // method and path of each
	ranges   []string // Range header of each request for a large file
	waits    []time.Duration

	host, cdnHost *httptest.Server
}

// small are the files of a model beside its weights.
func small() map[string][]byte {
	return map[string][]byte{
		configFile: []byte(`{"a":1}`), generationFile: []byte(`{"g":1}`), "tokenizer.json": []byte(`{"b":2}`),
		"tokenizer_config.json": []byte(`{}`), "README.md": []byte("read me"), "pytorch_model.bin": []byte("torch"),
	}
}

func newTestHub(t *testing.T) *testHub {
	h := &testHub{t: t, cache: t.TempDir(), files: small(), commit: testCommit}
	h.files[singleFile] = bytes.Repeat([]byte("weights "), 50_000)
	h.files["original/consolidated.safetensors"] = []byte("a second copy")
	h.host = httptest.NewServer(http.HandlerFunc(h.serve))
	h.cdnHost = httptest.NewServer(http.HandlerFunc(h.serveCDN))
	t.Cleanup(h.host.Close)
	t.Cleanup(h.cdnHost.Close)
	t.Setenv("HF_ENDPOINT", h.host.URL+"/")
	t.Setenv("HF_HUB_CACHE", h.cache)
	t.Setenv("HF_HOME", t.TempDir())
	for _, key := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(key, "")
	}
	return h
}

func large(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".gguf")
}

func etagOf(name string, contents []byte) string {
	if large(name) {
		sum := sha256.Sum256(contents)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(contents)), contents...))
	return hex.EncodeToString(sum[:])
}

func (h *testHub) note(r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
}

func (h *testHub) serve(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	if h.handle != nil && h.handle(w, r) {
		return
	}
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		w.Header().Set("X-Error-Code", "RepoNotFound")
		http.Error(w, "{}", http.StatusUnauthorized)
		return
	}
	if _, name, ok := strings.Cut(r.URL.Path, "/cached/"); ok {
		contents := h.files[name]
		w.Header().Set("ETag", `"`+etagOf(name, contents)+`"`)
		w.Header().Set("X-Repo-Commit", h.commit)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(contents))
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/models/"+testID+"/revision/") {
		h.serveListing(w)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/"+testID+"/resolve/"+h.commit+"/")
	contents, there := h.files[name]
	switch {
	case !ok || !there:
		w.Header().Set("X-Error-Code", "EntryNotFound")
		http.Error(w, "Entry not found", http.StatusNotFound)
	case large(name):
		w.Header().Set("X-Repo-Commit", h.commit)
		w.Header().Set(linkedETag, `"`+etagOf(name, contents)+`"`)
		w.Header().Set(linkedSize, fmt.Sprint(len(contents)))
		http.Redirect(w, r, h.cdnHost.URL+"/"+name+"?signature=secret", http.StatusFound)
	default:
		http.Redirect(w, r, "/cached/"+name, http.StatusTemporaryRedirect)
	}
}

func (h *testHub) serveListing(w http.ResponseWriter) {
	var said struct {
		ID       string              `json:"id"`
		SHA      string              `json:"sha"`
		Siblings []map[string]string `json:"siblings"`
	}
	said.ID, said.SHA = testID, h.commit
	names := h.siblings
	if names == nil {
		for name := range h.files {
			names = append(names, name)
		}
	}
	for _, name := range names {
		said.Siblings = append(said.Siblings, map[string]string{"rfilename": name})
	}
	json.NewEncoder(w).Encode(said)
}

func (h *testHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	h.note(r)
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token reached another host")
	}
	h.mu.Lock()
	h.ranges = append(h.ranges, r.Header.Get("Range"))
	h.mu.Unlock()
	contents := h.files[strings.TrimPrefix(r.URL.Path, "/")]
	if h.cdn != nil && h.cdn(w, r, contents) {
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(contents))
}

// take returns the requests since the last call.
func (h *testHub) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	requests := h.requests
	h.requests, h.ranges, h.waits = nil, nil, nil
	return requests
}

// fetch resolves a name without waiting between attempts.
func (h *testHub) fetch(ctx context.Context, model string, noWeights bool) (path, progress string, err error) {
	h.t.Helper()
	name, ok, err := parseHubName(model)
	if !ok || err != nil {
		h.t.Fatalf("%q is no hub's name: %v", model, err)
	}
	var lines bytes.Buffer
	f, err := openHuggingFace(name, &lines)
	if err != nil {
		return "", "", err
	}
	defer f.client.close()
	f.noWeights = noWeights
	f.client.wait = func(_ context.Context, d time.Duration) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waits = append(h.waits, d)
		return nil
	}
	path, err = f.run(ctx, hubOffline())
	return path, lines.String(), err
}

func (h *testHub) repo() string { return filepath.Join(h.cache, "models--org--model-1.5") }

// fetched fetches the test model and checks that its snapshot holds the right files.
func (h *testHub) fetched(model string, noWeights bool, want ...string) (progress string) {
	h.t.Helper()
	path, progress, err := h.fetch(h.t.Context(), model, noWeights)
	if err != nil {
		h.t.Fatalf("%v\n%s", err, progress)
	}
	if snapshot := filepath.Join(h.repo(), "snapshots", h.commit); path != snapshot {
		h.t.Fatalf("resolved to %s, want %s", path, snapshot)
	}
	var got []string
	filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(path, file)
			got = append(got, name)
			h.checkFile(path, name)
		}
		return err
	})
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		h.t.Errorf("files differ (-want +got):\n%s", diff)
	}
	return progress
}

// checkFile checks one file of a snapshot: the right contents, behind a relative link to a blob of its ETag's name.
func (h *testHub) checkFile(snapshot, name string) {
	h.t.Helper()
	contents, err := os.ReadFile(filepath.Join(snapshot, name))
	if err != nil || !bytes.Equal(contents, h.files[name]) {
		h.t.Errorf("%s: %d bytes (%v), want %d", name, len(contents), err, len(h.files[name]))
	}
	target, err := os.Readlink(filepath.Join(snapshot, name))
	want := strings.Repeat("../", 2+strings.Count(name, "/")) + "blobs/" + etagOf(name, contents)
	if err != nil || target != want {
		h.t.Errorf("%s links to %q (%v), want %q", name, target, err, want)
	}
}

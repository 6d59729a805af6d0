package weights

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// scopeFile is a file in a listing of modelscope.cn.
type scopeFile struct {
	Path, Type, Sha256 string
	Size               int64
}

// newTestScope speaks the protocol of modelscope.cn for one repository.
func newTestScope(t *testing.T, files map[string][]byte) (requests *[]string) {
	requests = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r.URL.Path)
		query := r.URL.Query()
		if query.Get("Revision") != modelScopeRevision || !strings.HasPrefix(r.URL.Path, "/api/v1/models/"+testID+"/") {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"Code":10010205001,"Message":"no such model"}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/repo") {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(files[query.Get("FilePath")]))
			return
		}
		list := []scopeFile{{Path: "folder", Type: "tree"}}
		for name, contents := range files {
			list = append(list, scopeFile{name, "blob", strings.ToUpper(etagOf(singleFile, contents)), int64(len(contents))})
		}
		json.NewEncoder(w).Encode(map[string]any{"Code": 200, "Data": map[string]any{"Files": list}})
	}))
	t.Cleanup(server.Close)
	t.Setenv("MODELSCOPE_DOMAIN", server.URL)
	t.Setenv("MODELSCOPE_CACHE", t.TempDir())
	t.Setenv(CacheEnv, t.TempDir())
	t.Setenv("HF_HUB_OFFLINE", "")
	return requests
}

func TestModelScope(t *testing.T) {
	files := small()
	files[singleFile] = []byte("weights")
	requests := newTestScope(t, files)
	ref := Ref{Model: testID, Source: ModelScope}
	for _, want := range []int{6, 0} { // the listing and five files, then nothing
		*requests = nil
		dir, err := Resolve(t.Context(), ref, io.Discard)
		if err != nil || len(*requests) != want {
			t.Fatalf("%d requests, want %d; error %v", len(*requests), want, err)
		}
		for _, name := range modelFiles(singleFile) {
			if got, err := os.ReadFile(filepath.Join(dir, name)); !bytes.Equal(got, files[name]) {
				t.Errorf("%s holds %q (%v)", name, got, err)
			}
		}
	}
	_, err := Resolve(t.Context(), Ref{Model: testID + "@v2", Source: ModelScope}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `no public model org/model-1.5 with revision "v2"`) {
		t.Errorf("error %v", err)
	}
}

func TestModelScopeCacheOfPython(t *testing.T) {
	requests := newTestScope(t, nil)
	dir := filepath.Join(os.Getenv("MODELSCOPE_CACHE"), "models", "org", "model-1___5")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, configFile, []byte("{}"))
	writeFile(t, dir, singleFile, []byte("weights"))
	got, err := Resolve(t.Context(), Ref{Model: testID, Source: ModelScope}, io.Discard)
	if got != dir || err != nil || len(*requests) > 0 {
		t.Errorf("resolved to %s (%v) with requests %v", got, err, *requests)
	}
}

package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHubCutAndResumed(t *testing.T) {
	h := newTestHub(t)
	cuts := 0
	h.cdn = func(w http.ResponseWriter, r *http.Request, contents []byte) bool {
		if cuts++; cuts > 2 {
			return false
		}
		var from int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		w.Header().Set("Content-Length", fmt.Sprint(len(contents)-from))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(contents)-1, len(contents)))
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write(contents[from : from+100_000])
		panic(http.ErrAbortHandler)
	}
	progress := h.fetched(testID, false, modelFiles(singleFile)...)
	if want := []string{"", "bytes=100000-", "bytes=200000-"}; !slices.Equal(h.ranges, want) {
		t.Errorf("asked for %q, want %q", h.ranges, want)
	}
	if !strings.Contains(progress, "cut at 100000 of 400000 bytes") || !strings.Contains(progress, "trying again in 1s") {
		t.Errorf("progress:\n%s", progress)
	}
}

func TestHubResumesAnEarlierDownload(t *testing.T) {
	for _, test := range []struct {
		name   string
		left   func(contents []byte) []byte
		ranges []string
	}{
		{"part", func(c []byte) []byte { return c[:123] }, []string{"bytes=123-"}},
		{"all", func(c []byte) []byte { return c }, nil},
		{"of another file", func([]byte) []byte { return []byte("nonsense") }, []string{"bytes=8-", ""}},
		{"too long", func(c []byte) []byte { return append(slices.Clone(c), 'x') }, []string{""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newTestHub(t)
			contents := h.files[singleFile]
			blobs := filepath.Join(h.repo(), "blobs")
			if err := os.MkdirAll(blobs, 0o755); err != nil {
				t.Fatal(err)
			}
			writeFile(t, blobs, etagOf(singleFile, contents)+".incomplete", test.left(contents))
			h.fetched(testID, false, modelFiles(singleFile)...)
			if !slices.Equal(h.ranges, test.ranges) {
				t.Errorf("asked for %q, want %q", h.ranges, test.ranges)
			}
		})
	}
}

func TestHubTriesAgain(t *testing.T) {
	for _, test := range []struct {
		name       string
		status     int
		key, value string
		want       time.Duration
	}{
		{"429", 429, "Retry-After", "7", 7 * time.Second},
		{"rate limit", 429, "RateLimit", `"resolvers";r=0;t=55`, 55 * time.Second},
		{"503", 503, "", "", time.Second},
		{"date in the past", 502, "Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT", time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newTestHub(t)
			failed := map[string]bool{}
			h.handle = func(w http.ResponseWriter, r *http.Request) bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				if key := r.Method + r.URL.Path; failed[key] || strings.Contains(r.URL.Path, "/cached/") {
					return false
				} else {
					failed[key] = true
				}
				w.Header().Set(test.key, test.value)
				w.WriteHeader(test.status)
				return true
			}
			h.fetched(testID, false, modelFiles(singleFile)...)
			want := slices.Repeat([]time.Duration{test.want}, 11) // the listing, and HEAD and GET of 5 files
			if !slices.Equal(h.waits, want) {
				t.Errorf("waited %v, want %v", h.waits, want)
			}
		})
	}
}

func TestHubGivesUp(t *testing.T) {
	h := newTestHub(t)
	h.handle = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	_, _, err := h.fetch(t.Context(), testID, false)
	if err == nil || !strings.Contains(err.Error(), "gave up after 5 attempts: "+h.host.URL+"/api/models/org/model-1.5/revision/main answered 503") {
		t.Errorf("error %v", err)
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 8e9}; !slices.Equal(h.waits, want) {
		t.Errorf("waited %v, want %v", h.waits, want)
	}
	h.handle = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	if _, _, err := h.fetch(t.Context(), testID, false); err == nil || !strings.Contains(err.Error(), "asks to wait 24h0m0s") {
		t.Errorf("error %v", err)
	}
}

func TestHubRefusals(t *testing.T) {
	for _, test := range []struct {
		name, token, code string
		status            int
		want              []string
	}{
		{"no such model", "", "RepoNotFound", 401, []string{"knows no model org/model-1.5 that you may read", "HF_TOKEN"}},
		{"no such model, known user", "t", "RepoNotFound", 404, []string{"knows no model org/model-1.5"}},
		{"plain 404", "", "", 404, []string{"knows no model"}},
		{"bad token", "t", "", 401, []string{"refuses your token"}},
		{"gated", "", "GatedRepo", 401, []string{"org/model-1.5 is gated", "accept its terms at http", "set HF_TOKEN"}},
		{"gated for this user", "t", "GatedRepo", 403, []string{"your token's account may not read it"}},
		{"forbidden", "t", "", 403, []string{"forbids access", "rights of your token", "because I say so"}},
		{"no such revision", "", "RevisionNotFound", 404, []string{`has no revision "v9"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newTestHub(t)
			t.Setenv("HF_TOKEN", test.token)
			h.handle = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Error-Code", test.code)
				w.WriteHeader(test.status)
				io.WriteString(w, `{"error":"because I say so"}`)
				return true
			}
			_, _, err := h.fetch(t.Context(), testID+"@v9", false)
			for _, part := range test.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v lacks %q", err, part)
				}
			}
			if missing := strings.Contains(test.name, "no such") || test.name == "plain 404"; errors.Is(err, fs.ErrNotExist) != missing {
				t.Errorf("is ErrNotExist: %v, want %v", !missing, missing)
			}
			if len(h.waits) > 0 {
				t.Error("tried again what can't succeed")
			}
			if len(h.take()) != 1 || exists(h.repo()) {
				t.Error("went on, or wrote to the cache")
			}
		})
	}
}

func TestHubDamagedFile(t *testing.T) {
	h := newTestHub(t)
	h.cdn = func(w http.ResponseWriter, _ *http.Request, contents []byte) bool {
		w.Write(bytes.ToUpper(contents))
		return true
	}
	_, _, err := h.fetch(t.Context(), testID, false)
	etag := etagOf(singleFile, h.files[singleFile])
	if err == nil || !strings.Contains(err.Error(), "model.safetensors: ") || !strings.Contains(err.Error(), "the hub names "+etag) {
		t.Errorf("error %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(h.repo(), "blobs", etag+"*"))
	if len(left) > 0 || exists(filepath.Join(h.repo(), "refs/main")) {
		t.Errorf("left %v, or a note that the revision is there", left)
	}
}

func TestHubWrongSizes(t *testing.T) {
	h := newTestHub(t)
	h.cdn = func(w http.ResponseWriter, _ *http.Request, contents []byte) bool {
		w.Write(append(slices.Clone(contents), "and more"...))
		return true
	}
	if _, _, err := h.fetch(t.Context(), testID, false); err == nil || !strings.Contains(err.Error(), "more than the 400000 bytes") {
		t.Errorf("too long: error %v", err)
	}
	h.handle = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/resolve/"+testCommit+"/"+singleFile) {
			w.Header().Set(linkedETag, `"`+strings.Repeat("a", 64)+`"`)
			w.Header().Set(linkedSize, "-1")
			return true
		}
		return false
	}
	if _, _, err := h.fetch(t.Context(), testID, false); err == nil || !strings.Contains(err.Error(), `no size ("-1")`) {
		t.Errorf("no size: error %v", err)
	}
}

func TestHubHostileAnswers(t *testing.T) {
	for _, name := range []string{
		"../config.json", "a/../../x.safetensors", "/etc/passwd", `..\x.safetensors`, "a\x00b", "a//b", ".", "", "a\nb.json",
		strings.Repeat("x", 600), strings.Repeat("x", 250) + "/y", "a/..",
	} {
		h := newTestHub(t)
		h.siblings = []string{configFile, name}
		_, _, err := h.fetch(t.Context(), testID, false)
		if err == nil || !strings.Contains(err.Error(), "the hub lists an unusable file") || exists(h.repo()) {
			t.Errorf("%q: error %v", name, err)
		}
	}
	for _, etag := range []string{"../../x", "", ".hidden", "a/b", strings.Repeat("e", 200)} {
		h := newTestHub(t)
		h.handle = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodHead {
				return false
			}
			w.Header().Set("ETag", `"`+etag+`"`)
			w.Header().Set("Content-Length", "7")
			return true
		}
		if _, _, err := h.fetch(t.Context(), testID, false); err == nil || !strings.Contains(err.Error(), "can't be the name of a file") {
			t.Errorf("ETag %q: error %v", etag, err)
		}
	}
	for _, commit := range []string{"", "main", "../../../x", strings.ToUpper(otherCommit)} {
		h := newTestHub(t)
		h.commit = commit
		if _, _, err := h.fetch(t.Context(), testID, false); err == nil || !strings.Contains(err.Error(), "40 hexadecimal digits") {
			t.Errorf("commit %q: error %v", commit, err)
		}
	}
}

func TestHubHostileIndex(t *testing.T) {
	h := newTestHub(t)
	h.files[indexFile] = []byte(`{"weight_map":{"a":"../../evil.safetensors"}}`)
	if _, _, err := h.fetch(t.Context(), testID, false); err == nil || !strings.Contains(err.Error(), "not the name of a safetensors file") {
		t.Errorf("error %v", err)
	}
}

func TestHubRedirectsFromHTTPS(t *testing.T) {
	secure, _ := http.NewRequest("GET", "https://hub/x", nil)
	plain, _ := http.NewRequest("GET", "http://hub/x", nil)
	if err := checkRedirect(plain, []*http.Request{secure}); !errors.Is(err, errRedirect) {
		t.Errorf("error %v", err)
	}
	if err := checkRedirect(secure, slices.Repeat([]*http.Request{secure}, 11)); !errors.Is(err, errRedirect) {
		t.Errorf("error %v", err)
	}
}

func TestHubCancelled(t *testing.T) {
	h := newTestHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	h.cdn = func(w http.ResponseWriter, r *http.Request, contents []byte) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(contents)))
		w.Write(contents[:1000])
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		return true
	}
	if _, _, err := h.fetch(ctx, testID, false); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	h.cdn = nil
	h.fetched(testID, false, modelFiles(singleFile)...)
}

package weights

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// modelFiles are those that a model with weights in one file needs.
func modelFiles(more ...string) []string {
	return append([]string{configFile, generationFile, "tokenizer.json", "tokenizer_config.json"}, more...)
}

func TestHubFetchesOnce(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	h := newTestHub(t)
	h.token = "secret-token"
	t.Setenv("HF_TOKEN", " secret-token\n")
	progress := h.fetched(testID, false, modelFiles(singleFile)...)
	for _, part := range []string{"fetching org/model-1.5 at 01234567: 4 files", "fetched model.safetensors (0.4 MB)"} {
		if !strings.Contains(progress, part) {
			t.Errorf("progress lacks %q:\n%s", part, progress)
		}
	}
	if strings.Contains(progress, "secret") {
		t.Errorf("progress tells the token or a signature:\n%s", progress)
	}
	if ref, err := os.ReadFile(filepath.Join(h.repo(), "refs/main")); string(ref) != testCommit {
		t.Errorf("refs/main holds %q (%v)", ref, err)
	}
	if !exists(filepath.Join(h.repo(), ".no_exist", testCommit, "chat_template.jinja")) {
		t.Error("that there is no chat_template.jinja was not noted")
	}
	h.take()
	for _, offline := range []string{"", "1"} {
		t.Setenv("HF_HUB_OFFLINE", offline)
		for _, model := range []string{testID, testID + "@main", testID + "@" + testCommit} {
			h.fetched(model, false, modelFiles(singleFile)...)
		}
	}
	if requests := h.take(); len(requests) > 0 {
		t.Errorf("the network was used for what is in the cache: %v", requests)
	}
}

func TestHubTokenFile(t *testing.T) {
	h := newTestHub(t)
	h.token = "filed"
	writeFile(t, os.Getenv("HF_HOME"), "token", []byte("filed\n"))
	h.fetched(testID, true, modelFiles()...)
}

func TestHubShards(t *testing.T) {
	h := newTestHub(t)
	h.files[indexFile] = []byte(`{"weight_map":{"a":"m-00001-of-00002.safetensors","b":"m-00002-of-00002.safetensors"}}`)
	h.files["m-00001-of-00002.safetensors"], h.files["m-00002-of-00002.safetensors"] = []byte("one"), []byte("two")
	h.files["additional_chat_templates/tool_use.jinja"] = []byte("T")
	h.fetched(testID, false, modelFiles(indexFile, "m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors",
		"additional_chat_templates/tool_use.jinja")...)
	delete(h.files, "m-00002-of-00002.safetensors")
	h.commit = otherCommit
	if _, _, err := h.fetch(t.Context(), testID+"@"+otherCommit, false); err == nil || !strings.Contains(err.Error(), "lacks m-00002-of-00002.safetensors") {
		t.Errorf("error %v", err)
	}
}

func TestHubWithoutWeights(t *testing.T) {
	h := newTestHub(t)
	h.fetched(testID, true, modelFiles()...)
	h.take()
	h.fetched(testID, true, modelFiles()...)
	if requests := h.take(); len(requests) > 0 {
		t.Errorf("the second time: %v", requests)
	}
	t.Setenv("HF_HUB_OFFLINE", "yes")
	_, _, err := h.fetch(t.Context(), testID, false)
	if err == nil || !strings.Contains(err.Error(), "not whole in the cache, and HF_HUB_OFFLINE forbids") {
		t.Errorf("error %v", err)
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	h.fetched(testID, false, modelFiles(singleFile)...)
}

func TestHubGGUF(t *testing.T) {
	h := newTestHub(t)
	h.files = map[string][]byte{"README.md": []byte("r"), "a.Q4_0.gguf": []byte("GGUF a"), "sub/b.gguf": []byte("GGUF b")}
	_, _, err := h.fetch(t.Context(), testID, false)
	if err == nil || !strings.Contains(err.Error(), "org/model-1.5/a.Q4_0.gguf") || !strings.Contains(err.Error(), "org/model-1.5/sub/b.gguf") {
		t.Errorf("no safetensors: error %v", err)
	}
	for _, file := range []string{"a.Q4_0.gguf", "sub/b.gguf"} {
		path, _, err := h.fetch(t.Context(), testID+"/"+file+"@main", false)
		if want := filepath.Join(h.repo(), "snapshots", testCommit, file); err != nil || path != want {
			t.Errorf("%s: resolved to %s (%v)", file, path, err)
		}
		h.checkFile(filepath.Join(h.repo(), "snapshots", testCommit), file)
	}
	h.take()
	if _, _, err := h.fetch(t.Context(), testID+"/a.Q4_0.gguf", false); err != nil || len(h.take()) > 0 {
		t.Errorf("from the cache: %v, or the network was used", err)
	}
	if _, _, err := h.fetch(t.Context(), testID+"/c.gguf", false); err == nil || !strings.Contains(err.Error(), "has no file c.gguf; it has GGUF files") {
		t.Errorf("no such file: error %v", err)
	}
}

func TestHubNothingToRun(t *testing.T) {
	h := newTestHub(t)
	delete(h.files, singleFile)
	if _, _, err := h.fetch(t.Context(), testID, false); err == nil || !strings.HasSuffix(err.Error(), "has no weights as safetensors") {
		t.Errorf("no weights: error %v", err)
	}
}

// pythonCache lays out what huggingface_hub's snapshot_download leaves.
func (h *testHub) pythonCache(files ...string) {
	snapshot := filepath.Join(h.repo(), "snapshots", testCommit)
	for _, dir := range []string{snapshot, filepath.Join(h.repo(), "blobs"), filepath.Join(h.repo(), "refs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	writeFile(h.t, filepath.Join(h.repo(), "refs"), "main", []byte(testCommit))
	for _, name := range files {
		etag := etagOf(name, h.files[name])
		writeFile(h.t, filepath.Join(h.repo(), "blobs"), etag, h.files[name])
		if err := os.Symlink("../../blobs/"+etag, filepath.Join(snapshot, name)); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestHubCacheOfPython(t *testing.T) {
	all := modelFiles(singleFile)
	h := newTestHub(t)
	h.pythonCache(all...)
	t.Setenv("HF_HUB_OFFLINE", "1")
	h.fetched(testID, false, all...)
	if requests := h.take(); len(requests) > 0 {
		t.Errorf("offline: %v", requests)
	}
	// Whether there is a chat_template.jinja is not known, so the hub is asked once, about the commit that is there.
	t.Setenv("HF_HUB_OFFLINE", "")
	for _, want := range [][]string{{"GET /api/models/org/model-1.5/revision/" + testCommit}, nil} {
		h.fetched(testID, false, all...)
		if requests := h.take(); !slices.Equal(requests, want) {
			t.Errorf("online: %v, want %v", requests, want)
		}
	}
}

func TestHubCacheWithoutNetwork(t *testing.T) {
	h := newTestHub(t)
	h.pythonCache(modelFiles(singleFile)...)
	h.host.Close()
	if progress := h.fetched(testID, false, modelFiles(singleFile)...); !strings.Contains(progress, "using org/model-1.5@main as it is in the cache") {
		t.Errorf("progress: %s", progress)
	}
	if len(h.waits) > 0 {
		t.Errorf("waited %v", h.waits)
	}
}

func TestHubCompletesCacheOfPython(t *testing.T) {
	h := newTestHub(t)
	h.pythonCache(configFile, "tokenizer.json")
	h.fetched(testID, false, modelFiles(singleFile)...)
}

func TestHubNewCommit(t *testing.T) {
	h := newTestHub(t)
	h.fetched(testID, false, modelFiles(singleFile)...)
	h.commit = otherCommit
	h.files[configFile] = []byte(`{"new":1}`)
	h.take()
	path, err := Resolve(t.Context(), Ref{Model: testID}, io.Discard)
	if filepath.Base(path) != testCommit || err != nil || len(h.take()) > 0 {
		t.Errorf("resolved to %s (%v) or used the network, want what is in the cache", path, err)
	}
	path, err = Resolve(t.Context(), Ref{Model: testID, Update: true}, io.Discard)
	if filepath.Base(path) != otherCommit || err != nil {
		t.Errorf("updated to %s (%v)", path, err)
	}
	h.fetched(testID, false, modelFiles(singleFile)...)
	if h.ranges != nil {
		t.Errorf("weights that are in the cache were fetched again")
	}
	h.host.Close()
	if path, err = Resolve(t.Context(), Ref{Model: testID, Update: true}, io.Discard); filepath.Base(path) != otherCommit || err != nil {
		t.Errorf("without network, updated to %s (%v)", path, err)
	}
}

func TestHubTogether(t *testing.T) {
	h := newTestHub(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if _, err := Resolve(context.Background(), Ref{Model: testID}, io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	for range 2 { // other processes
		group.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestHubChild$", "-test.v")
			cmd.Env = append(os.Environ(), "MINISGL_TEST_HUB_CHILD=1")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	group.Wait()
	h.fetched(testID, false, modelFiles(singleFile)...)
	if len(h.ranges) != 1 {
		t.Errorf("the weights were fetched %d times", len(h.ranges))
	}
}

// TestHubChild is a process of TestHubTogether.
func TestHubChild(t *testing.T) {
	if os.Getenv("MINISGL_TEST_HUB_CHILD") == "" {
		t.Skip("runs inside TestHubTogether only")
	}
	if _, err := Resolve(context.Background(), Ref{Model: testID}, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestHubModelOpens opens what was fetched of a real, small model.
func TestHubModelOpens(t *testing.T) {
	h := newTestHub(t)
	dir := filepath.Join(tiny, "llama-tied")
	h.files = map[string][]byte{}
	for _, name := range append(modelFiles(singleFile), "f16.gguf") {
		contents, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		h.files[name] = contents
	}
	for _, model := range []string{testID, testID + "/f16.gguf"} {
		path, _, err := h.fetch(t.Context(), model, false)
		if err != nil {
			t.Fatal(err)
		}
		compareTensors(t, openTest(t, dir), openTest(t, path))
	}
	path, _, err := h.fetch(t.Context(), testID, true)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := OpenBare(path)
	if err != nil || !bytes.Equal(bare.Config, h.files[configFile]) || !bytes.Equal(bare.Generation, h.files[generationFile]) || len(bare.Names()) > 0 {
		t.Errorf("bare: %v, %d tensors", err, len(bare.Names()))
	}
}

func TestHubEndpoint(t *testing.T) {
	newTestHub(t)
	for _, endpoint := range []string{"ftp://x", "hub.example", "http://"} {
		t.Setenv("HF_ENDPOINT", endpoint)
		if _, err := Resolve(t.Context(), Ref{Model: testID}, io.Discard); err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT must be the URL") {
			t.Errorf("%s: error %v", endpoint, err)
		}
	}
	if _, err := Resolve(t.Context(), Ref{Model: testID, Source: "nohub"}, io.Discard); err == nil || !strings.Contains(err.Error(), `no hub "nohub"`) {
		t.Errorf("error %v", err)
	}
}

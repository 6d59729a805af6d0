package server

import (
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// The browser's side is tested with Chromium, in python/tests/test_page.py.

func TestDashboard(t *testing.T) {
	const maxBytes = 300_000 // of all parts
	loading := newServer(t, nil, Config{APIKey: "k"})
	page := do(loading, "GET", "/", "")
	if kind := page.Header().Get("Content-Type"); page.Code != 200 || kind != "text/html; charset=utf-8" {
		t.Fatalf("the page is %d %q while the model loads, without a key", page.Code, kind)
	}
	total := 0
	err := fs.WalkDir(dashboardFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".html") {
			return err
		}
		w := do(loading, "GET", "/"+path, "")
		total += w.Body.Len()
		header := w.Header()
		if w.Code != 200 || header.Get("Content-Type") == "" || header.Get("Content-Security-Policy") != dashboardPolicy || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, w.Code, header)
		}
		if again := request(loading, "GET", "/"+path, "", "If-None-Match", header.Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s: %d for what the browser has", path, again.Code)
		}
		outside := regexp.MustCompile(`https?://[^"' ]+`).FindAllString(strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", ""), -1)
		if len(outside) > 0 || strings.Contains(w.Body.String(), "innerHTML") {
			t.Errorf("%s needs %v, or puts text in as HTML", path, outside)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total += page.Body.Len(); total > maxBytes {
		t.Errorf("the page weighs %d bytes, want at most %d", total, maxBytes)
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		if w := do(loading, "GET", "/"+m[1], ""); w.Code != 200 {
			t.Errorf("the page names %s, which is %d", m[1], w.Code)
		}
	}
	for path, want := range map[string]int{"/dashboard/nothing.js": 404, "/dashboard/": 401, "/dashboard/../server.go": 401, "/dashboard": 401} {
		if w := do(loading, "GET", path, ""); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	if w := do(loading, "POST", "/", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %d", w.Code)
	}
}

package server

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// dashboardFiles are the page at / and its parts below /dashboard/. They need
// no build, and nothing from elsewhere.
//
//go:embed dashboard/*.html dashboard/*.css dashboard/*.js dashboard/*.svg
var dashboardFiles embed.FS

const (
	dashboardPath = "/dashboard/"
	// dashboardPolicy lets the page load its own files and nothing else.
	dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// dashboardTypes don't depend on the system's tables, as package mime does.
var dashboardTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// dashboard serves the page: to everyone and while the model loads, since it has
// no figures itself and tells what it waits for.
func (s *Server) dashboard(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "dashboard/index.html"
	}
	data, err := dashboardFiles.ReadFile(name)
	if err != nil {
		s.fail(w, openai.Errorf(http.StatusNotFound, "there is no %s here", r.URL.Path))
		return
	}
	sum := sha256.Sum256(data)
	header := w.Header()
	header.Set("Content-Type", dashboardTypes[path.Ext(name)])
	header.Set("Content-Security-Policy", dashboardPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(data)))
}

// isDashboard reports whether a path is the page's or one of its parts'.
func isDashboard(path string) bool { return path == "/" || strings.HasPrefix(path, dashboardPath) }

package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/minisgl/minisgl/go/openai"
)

const codeInvalidKey = "invalid_api_key"

// open lists the paths that need no key: a balancer and a monitor have none, and
// they tell nothing of the requests' contents. Nor does the dashboard, which asks
// for it itself.
var open = []string{"/health", "/metrics"}

// authorize asks for the API key, if there is one. Nor does OPTIONS need it: a
// browser's preflight can't carry it.
func (s *Server) authorize(next http.Handler) http.Handler {
	if s.cfg.APIKey == "" {
		return next
	}
	want := sha256.Sum256([]byte(s.cfg.APIKey))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(keyOf(r)))
		valid := subtle.ConstantTimeCompare(got[:], want[:]) == 1
		if valid || r.Method == http.MethodOptions || slices.Contains(open, r.URL.Path) || isDashboard(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.fail(w, openai.Errorf(http.StatusUnauthorized, "the API key is missing or wrong; send the header Authorization: Bearer KEY").
			WithCode(codeInvalidKey))
	})
}

// keyOf returns the API key that a request brings; "" if it has none.
func keyOf(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	if websocket.IsWebSocketUpgrade(r) {
		return socketKey(r)
	}
	return ""
}

// allowOrigin lets pages of the configured origin read the answers, and answers
// their preflights.
func (s *Server) allowOrigin(next http.Handler) http.Handler {
	allowed := s.cfg.CORSOrigin
	if allowed == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin == "" || allowed != "*" && allowed != origin {
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Origin", allowed)
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
		if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
			header.Set("Access-Control-Allow-Headers", names)
		}
		header.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}

package server

import (
	"bufio"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// methods are an endpoint's handlers. GET implies HEAD; OPTIONS is answered for
// all.
type methods map[string]http.HandlerFunc

// allow dispatches by method.
func (s *Server) allow(m methods) http.Handler {
	if get := m[http.MethodGet]; get != nil {
		m[http.MethodHead] = get
	}
	names := append(slices.Collect(maps.Keys(m)), http.MethodOptions)
	slices.Sort(names)
	allowed := strings.Join(slices.Compact(names), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := m[r.Method]
		switch {
		case handler != nil:
			handler(w, r)
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allowed)
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", allowed)
			s.fail(w, openai.Errorf(http.StatusMethodNotAllowed, "%s %s is not allowed; use %s", r.Method, r.URL.Path, allowed))
		}
	})
}

// recorder remembers the status of a response.
type recorder struct {
	http.ResponseWriter
	code int // 0: nothing sent yet
}

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Hijack serves websocket.Upgrader, which doesn't know of Unwrap.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.code = http.StatusSwitchingProtocols
	return http.NewResponseController(r.ResponseWriter).Hijack()
}

// Unwrap serves http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

const (
	requestIDHeader = "X-Request-Id"
	maxRequestID    = 128 // bytes
)

// requestID is what the caller names a request by, so that it finds it in the
// log, or a name of ours.
func (s *Server) requestID(r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	odd := func(c rune) bool { return c < '!' || c > '~' }
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, odd) {
		return s.newID()
	}
	return id
}

// observe names a request, bounds the time that a body may take to arrive (net/http reads on even
// if the handler doesn't), writes the access log and turns a panic into an error response, or,
// when the response has begun, into a broken connection.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		_ = http.NewResponseController(w).SetReadDeadline(begin.Add(s.cfg.ReadTimeout))
		rec := &recorder{ResponseWriter: w}
		id := s.requestID(r)
		w.Header().Set(requestIDHeader, id)
		defer func() {
			failure := recover()
			if failure != nil && failure != any(http.ErrAbortHandler) {
				s.log.Error("a handler failed", "method", r.Method, "path", r.URL.Path, "failure", failure)
				if rec.code == 0 {
					s.fail(rec, openai.Errorf(http.StatusInternalServerError, "an internal error; see the server's log"))
					failure = nil
				}
			}
			s.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path),
				slog.Int("status", rec.code), slog.Duration("took", time.Since(begin)), slog.String("from", r.RemoteAddr), slog.String("id", id))
			if failure != nil {
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

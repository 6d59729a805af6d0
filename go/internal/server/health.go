package server

import "net/http"

type statusBody struct {
	Status string `json:"status"`
}

// health tells whether the server takes requests. It asks nothing of the engine,
// so it answers at once under any load.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	now, code := s.now(), http.StatusServiceUnavailable
	if now == ready {
		code = http.StatusOK
	}
	s.writeJSON(w, code, statusBody{now.String()})
}

// status answers at /v1, where mini-sglang's clients look whether it is there.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, statusBody{"ok"})
}

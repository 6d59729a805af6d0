package server

import (
	"net/http"
	"strings"

	"github.com/minisgl/minisgl/go/openai"
)

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, openai.ModelList{Object: openai.ObjectList, Data: []openai.Model{s.servedModel()}})
}

// model answers for one model. An id that is a path keeps its slashes, but for
// a leading one, which cleanPath takes for a slip.
func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	m, id := s.servedModel(), r.PathValue("id")
	if id != strings.TrimPrefix(m.ID, "/") {
		s.fail(w, openai.Errorf(http.StatusNotFound, "there is no model %q here, only %q", id, m.ID).WithCode(openai.CodeModelNotFound))
		return
	}
	s.writeJSON(w, http.StatusOK, m)
}

func (s *Server) servedModel() openai.Model {
	info := s.engine.Info()
	return openai.Model{
		ID: s.modelName(), Object: openai.ObjectModel, Created: s.started.Unix(), OwnedBy: "minisgl",
		Root: info.Path, MaxModelLen: info.MaxSeqLen,
	}
}

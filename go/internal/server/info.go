package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// healthTimeout bounds /health_generate.
const healthTimeout = 20 * time.Second

func (s *Server) modelInfo(w http.ResponseWriter, _ *http.Request) {
	info := s.engine.Info()
	s.writeJSON(w, http.StatusOK, openai.ModelInfo{
		ModelPath: info.Path, TokenizerPath: info.Path, IsGeneration: true, WeightVersion: "default",
		Architectures: []string{info.Architecture},
	})
}

func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	info, stats := s.engine.Info(), s.engine.Stats()
	capacity := info.NumPages * info.PageSize
	state := openai.InternalState{
		MaxRunning: s.cfg.MaxRunning, MemoryUsage: openai.MemoryUsage{TokenCapacity: capacity},
		LastGenThroughput: s.metrics.rate.perSecond(time.Now()), Running: stats.Running, Waiting: stats.Waiting,
		JumpedTokens: stats.JumpedTokens,
	}
	if info.SpeculativeAlgorithm != "" {
		state.AcceptLength = new(stats.AcceptLength())
	}
	s.writeJSON(w, http.StatusOK, openai.ServerInfo{
		ModelPath: info.Path, TokenizerPath: info.Path, ServedModelName: s.modelName(), DType: info.DType, Device: info.Device,
		ContextLength: info.MaxSeqLen, PageSize: info.PageSize, MaxRunningRequests: s.cfg.MaxRunning,
		MaxTotalNumTokens: capacity, MaxReqInputLen: info.MaxSeqLen - 1, Status: s.now().String(), Version: s.cfg.Version,
		ToolCallParser: orNil(s.cfg.ToolCallParser), ReasoningParser: orNil(s.cfg.ReasoningParser),
		SpeculativeAlgorithm: orNil(info.SpeculativeAlgorithm), SpeculativeDraftTokens: orNil(info.SpeculativeDraftTokens),
		InternalStates: []openai.InternalState{state},
	})
}

func orNil[T comparable](value T) *T {
	var none T
	if value == none {
		return nil
	}
	return &value
}

func (s *Server) flushCache(w http.ResponseWriter, _ *http.Request) {
	pages, err := s.engine.FlushCache()
	if err != nil {
		s.fail(w, err)
		return
	}
	s.writeText(w, fmt.Sprintf("Cache flushed: %d pages are free again.\n", pages))
}

// abortRequest serves /abort_request. A name that nothing runs under is no
// error: the request may just have ended.
func (s *Server) abortRequest(w http.ResponseWriter, _ *http.Request, body []byte) error {
	req, err := openai.ParseAbort(body)
	if err != nil {
		return err
	}
	s.log.Info("aborting requests", "rid", req.RID, "all", req.All, "found", s.abort(req.RID, req.All))
	s.writeText(w, "")
	return nil
}

// healthGenerate is well when a token comes.
func (s *Server) healthGenerate(w http.ResponseWriter, r *http.Request) {
	if s.now() != ready {
		s.fail(w, s.unavailable())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	err := warmUp(ctx, s.engine)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		err = openai.Errorf(http.StatusServiceUnavailable, "no token came within %v", healthTimeout)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	s.writeJSON(w, http.StatusOK, statusBody{"ok"})
}

func (s *Server) tokenize(w http.ResponseWriter, _ *http.Request, body []byte) error {
	req, err := openai.ParseTokenize(body)
	if err != nil {
		return err
	}
	lists, counts := make([][]int32, len(req.Texts)), make([]int, len(req.Texts))
	for i, text := range req.Texts {
		ids, err := s.engine.Encode(text, req.AddSpecial)
		if err != nil {
			return openai.Invalid(pathOf("prompt", i, req.Many), "%v", err)
		}
		lists[i], counts[i] = append([]int32{}, ids...), len(ids)
	}
	answer := openai.TokenizeResponse{Tokens: lists, Count: counts, MaxModelLen: s.engine.Info().MaxSeqLen}
	if !req.Many {
		answer.Tokens, answer.Count = lists[0], counts[0]
	}
	s.writeJSON(w, http.StatusOK, answer)
	return nil
}

func (s *Server) detokenize(w http.ResponseWriter, _ *http.Request, body []byte) error {
	req, err := openai.ParseDetokenize(body)
	if err != nil {
		return err
	}
	texts := make([]string, len(req.TokenIDs))
	for i, ids := range req.TokenIDs {
		if texts[i], err = s.engine.Decode(ids, req.SkipSpecial); err != nil {
			return openai.Invalid(pathOf("tokens", i, req.Many), "%v", err)
		}
	}
	answer := openai.DetokenizeResponse{Text: texts}
	if !req.Many {
		answer.Text = texts[0]
	}
	s.writeJSON(w, http.StatusOK, answer)
	return nil
}

package server

import (
	"net/http"

	"github.com/minisgl/minisgl/go/openai"
)

// socketStats serves /ws/stats.
func (s *Server) socketStats(w http.ResponseWriter, r *http.Request) {
	c, ok := s.upgrade(w, r)
	if !ok {
		return
	}
	c.work.Go(func() {
		history, news, leave := s.stats.subscribe()
		defer leave()
		message, err := encode(s.hello(history))
		for err == nil {
			if c.send(message) != nil {
				return
			}
			select {
			case message = <-news:
			case <-c.ended:
				return
			}
		}
		s.log.Error("no statistics", "error", err)
	})
	c.run(func([]byte) {})
}

// hello says what doesn't change, and what was.
func (s *Server) hello(history []openai.ServerStats) openai.StatsHello {
	info := s.engine.Info()
	return openai.StatsHello{
		V: openai.SocketVersion, Type: openai.StatsTypeHello, Version: s.cfg.Version, Started: unixSeconds(s.started), Flags: s.cfg.Flags,
		Model: openai.StatsModel{
			Name: s.modelName(), Path: info.Path, Architecture: info.Architecture, DType: info.DType, KVCacheDType: info.KVCacheDType, Device: info.Device,
			Threads: info.Threads, ContextLength: info.MaxSeqLen, PageSize: info.PageSize, MaxRunning: s.cfg.MaxRunning,
			WeightBytes: info.WeightBytes, LoadSeconds: info.LoadTime.Seconds(), Speculation: info.SpeculativeAlgorithm,
		},
		Interval: statsInterval.Seconds(), Window: recentWindow.Seconds(), Keep: statsKept, History: history,
	}
}

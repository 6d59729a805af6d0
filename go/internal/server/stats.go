package server

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

const (
	statsInterval = time.Second
	statsKept     = 300 // samples for those who connect
	statsWaiting  = 4   // samples that may wait for a subscriber; it misses more
)

// statsRing takes a sample of the server's state at each interval, once for all
// subscribers, and keeps the newest.
type statsRing struct {
	mu          sync.Mutex
	samples     []openai.ServerStats // at most statsKept, the oldest first
	last        llm.Stats            // of the newest sample
	subscribers map[chan []byte]struct{}
}

// watch takes samples until ctx ends.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(statsInterval)
	defer tick.Stop()
	for {
		s.sample(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample takes one sample.
func (s *Server) sample(now time.Time) {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	r := &s.stats
	engine := s.engine.Stats()
	next := s.serverStats(now, engine)
	if n := len(r.samples); n > 0 {
		before := r.samples[n-1]
		since := next.Time - before.Time
		next.PrefillRate = perSecond(engine.PromptTokens-r.last.PromptTokens, since)
		next.DecodeRate = perSecond(next.Tokens.Completion-before.Tokens.Completion, since)
	}
	if len(r.samples) == statsKept {
		r.samples = append(r.samples[:0], r.samples[1:]...)
	}
	r.samples, r.last = append(r.samples, next), engine
	r.publish(next)
}

func perSecond(n int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// serverStats leaves the rates out.
func (s *Server) serverStats(now time.Time, e llm.Stats) openai.ServerStats {
	m := s.metrics
	return openai.ServerStats{
		V: openai.SocketVersion, Type: openai.StatsTypeStats, Time: unixSeconds(now), Uptime: now.Sub(s.started).Seconds(), Status: s.now().String(),
		Running: e.Running, Queued: e.Waiting,
		Pages: openai.PageStats{Total: e.TotalPages, Free: e.FreePages, Cached: e.EvictablePages, InUse: e.TotalPages - e.FreePages - e.EvictablePages},
		Cache: openai.CacheStats{HitRate: e.HitRate(), Nodes: e.CacheNodes, Tokens: e.CachedPages * s.engine.Info().PageSize},
		Requests: openai.RequestStats{
			Started: count(m.started), Finished: e.FinishedReqs, Aborted: count(m.aborted), Preemptions: e.Preemptions,
		},
		Tokens: openai.TokenStats{Prompt: count(m.prompt), Cached: count(m.cached), Completion: count(m.generated), Draft: e.DraftTokens, Accepted: e.AcceptedTokens},
		TTFT:   percentiles(m.recentTTFT), ITL: percentiles(m.recentITL),
	}
}

// publish gives a sample to the subscribers that have room for it.
func (r *statsRing) publish(stats openai.ServerStats) {
	if len(r.subscribers) == 0 {
		return
	}
	message, err := encode(stats)
	if err != nil {
		return
	}
	for news := range r.subscribers {
		select {
		case news <- message:
		default:
		}
	}
}

// subscribe returns the samples so far and a channel of those to come.
func (r *statsRing) subscribe() (history []openai.ServerStats, news <-chan []byte, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan []byte, statsWaiting)
	if r.subscribers == nil {
		r.subscribers = map[chan []byte]struct{}{}
	}
	r.subscribers[c] = struct{}{}
	return append([]openai.ServerStats{}, r.samples...), c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, c)
	}
}

// count reads a counter.
func count(c prometheus.Counter) int64 { return int64(snapshot(c).GetCounter().GetValue()) }

// percentiles reads a summary of times; nil if there were none of late.
func percentiles(s prometheus.Summary) *openai.Percentiles {
	p := &openai.Percentiles{}
	to := map[float64]*float64{0.5: &p.P50, 0.9: &p.P90, 0.99: &p.P99}
	for _, q := range snapshot(s).GetSummary().GetQuantile() {
		if math.IsNaN(q.GetValue()) {
			return nil
		}
		*to[q.GetQuantile()] = q.GetValue() * 1000
	}
	return p
}

func snapshot(m prometheus.Metric) *dto.Metric {
	var out dto.Metric
	_ = m.Write(&out) // fails for no metric of this server
	return &out
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

package llm

import "time"

// reportInterval is the time between two log lines of a busy engine.
const reportInterval = 5 * time.Second

// HitRate is the share of prompt tokens that were found in the prefix cache.
func (s Stats) HitRate() float64 {
	if s.PromptTokens+s.CachedTokens == 0 {
		return 0
	}
	return float64(s.CachedTokens) / float64(s.PromptTokens+s.CachedTokens)
}

// TokenUsage is the share of the KV pages that requests hold; what only the
// prefix cache holds could be had.
func (s Stats) TokenUsage() float64 {
	if s.TotalPages == 0 {
		return 0
	}
	return 1 - float64(s.FreePages+s.EvictablePages)/float64(s.TotalPages)
}

// reporter logs how a busy engine is doing, every few seconds.
type reporter struct {
	at   time.Time
	last Stats
}

// report logs a line if it is time for one and something was computed since the
// last.
func (l *LLM) report(now time.Time) {
	r := &l.reporter
	since := now.Sub(r.at)
	if since < reportInterval {
		return
	}
	s := l.Stats()
	prompt, output := s.PromptTokens-r.last.PromptTokens, s.CompletionTokens-r.last.CompletionTokens
	if !r.at.IsZero() && since < 2*reportInterval && prompt+output > 0 {
		l.cfg.Logger.Info("running", "requests", s.Running, "queued", s.Waiting,
			"prompt_tok_s", round(float64(prompt)/since.Seconds()), "output_tok_s", round(float64(output)/since.Seconds()),
			"token_usage", round(s.TokenUsage()), "cache_hit_rate", round(s.HitRate()), "preemptions", s.Preemptions, "accept_length", round(s.AcceptLength()))
	}
	r.at, r.last = now, s
}

// round keeps two decimals, for people.
func round(x float64) float64 { return float64(int64(x*100+0.5)) / 100 }

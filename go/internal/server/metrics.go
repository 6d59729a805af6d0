package server

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/minisgl/minisgl/go/llm"
)

// metrics are sglang's, by name and meaning, so that its dashboards read them. What
// sglang has no name for begins with minisgl.
type metrics struct {
	handler http.Handler
	rate    meter

	prompt, generated, cached, started, aborted prometheus.Counter
	ttft, itl, e2e, queue                       prometheus.Histogram
	recentTTFT, recentITL                       prometheus.Summary // for /ws/stats
}

// Upper bounds of the histograms' buckets, in seconds.
var (
	ttftBuckets = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}
	itlBuckets  = []float64{0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8}
	e2eBuckets  = []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400}
)

func newMetrics(engine Engine, model string) *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	label := prometheus.Labels{"model_name": strings.ToValidUTF8(model, "\ufffd")}
	r := prometheus.WrapRegistererWith(label, registry)
	m := &metrics{
		handler:   promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		prompt:    counter(r, "prompt_tokens_total", "Prompt tokens of the requests, computed or found in the prefix cache."),
		generated: counter(r, "generation_tokens_total", "Tokens that were generated."),
		cached:    counter(r, "cached_tokens_total", "Prompt tokens that were found in the prefix cache."),
		started:   counter(r, "num_requests_total", "Requests that the engine took."),
		aborted:   counter(r, "num_aborted_requests_total", "Requests that ended before their time: the client left, or it was asked for."),
		ttft:      histogram(r, "time_to_first_token_seconds", "Time from a request's start to its first token.", ttftBuckets),
		queue:     histogram(r, "queue_time_seconds", "Time from a request's start to its first batch.", ttftBuckets),
		itl:       histogram(r, "inter_token_latency_seconds", "Time between two tokens of a request.", itlBuckets),
		e2e:       histogram(r, "e2e_request_latency_seconds", "Time from a request's start to its end.", e2eBuckets),

		recentTTFT: recent(),
		recentITL:  recent(),
	}
	m.registerGauges(r, engine)
	return m
}

// registerGauges adds what is read from the engine when it is asked for. The
// number of requests has two names, since tools look for either.
func (m *metrics) registerGauges(r prometheus.Registerer, engine Engine) {
	info := engine.Info()
	gauge := func(name, help string, value func(llm.Stats) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sglang:" + name, Help: help},
			func() float64 { return value(engine.Stats()) }))
	}
	running := func(s llm.Stats) float64 { return float64(s.Running) }
	waiting := func(s llm.Stats) float64 { return float64(s.Waiting) }
	gauge("num_running_reqs", "Requests that run.", running)
	gauge("num_requests_running", "Requests that run.", running)
	gauge("num_queue_reqs", "Requests that wait.", waiting)
	gauge("num_requests_waiting", "Requests that wait.", waiting)
	gauge("token_usage", "Share of the KV cache that requests hold.", llm.Stats.TokenUsage)
	gauge("cache_hit_rate", "Share of the prompt tokens that were found in the prefix cache.", llm.Stats.HitRate)
	gauge("gen_throughput", "Tokens generated per second, over the last seconds.", func(llm.Stats) float64 { return m.rate.perSecond(time.Now()) })
	gauge("spec_accept_length", "Tokens that a decoding step gives a request on average, with speculation; 0 without.", func(s llm.Stats) float64 {
		if info.SpeculativeAlgorithm == "" {
			return 0
		}
		return s.AcceptLength()
	})
	gauge("spec_accept_rate", "Share of the guessed tokens that were right.", llm.Stats.AcceptRate)
	gauge("num_used_tokens", "Tokens of the KV cache that requests hold.", func(s llm.Stats) float64 {
		return float64((s.TotalPages - s.FreePages - s.EvictablePages) * info.PageSize)
	})
	gauge("max_total_num_tokens", "Tokens that fit in the KV cache.", func(llm.Stats) float64 { return float64(info.NumPages * info.PageSize) })
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "minisgl:jump_forward_tokens_total", Help: "Tokens that grammars forced, and that were not sampled.",
	}, func() float64 { return float64(engine.Stats().JumpedTokens) }))
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sglang:num_retracted_requests_total", Help: "Times that a request was put back for want of KV pages.",
	}, func() float64 { return float64(engine.Stats().Preemptions) }))
}

func counter(r prometheus.Registerer, name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "sglang:" + name, Help: help})
	r.MustRegister(c)
	return c
}

func histogram(r prometheus.Registerer, name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sglang:" + name, Help: help, Buckets: buckets})
	r.MustRegister(h)
	return h
}

// recentWindow is how far the percentiles of /ws/stats look back; how far at
// least is a third less.
const recentWindow = 30 * time.Second

// recent summarizes the times of the last seconds. It is not registered: from
// histograms Prometheus makes the percentiles of any time.
func recent() prometheus.Summary {
	return prometheus.NewSummary(prometheus.SummaryOpts{
		MaxAge: recentWindow, AgeBuckets: 3, Objectives: map[float64]float64{0.5: 0.01, 0.9: 0.01, 0.99: 0.001},
	})
}

// timer remembers when a request's events came.
type timer struct {
	begin, first, last time.Time // of the request, and of its first and latest token, which are zero before there is one
}

// observe counts an event of a request.
func (m *metrics) observe(t *timer, ev llm.Event) {
	now := time.Now()
	if ev.HasToken {
		if t.last.IsZero() {
			t.first = now
			m.ttft.Observe(now.Sub(t.begin).Seconds())
			m.recentTTFT.Observe(now.Sub(t.begin).Seconds())
			if !ev.Begun.IsZero() {
				m.queue.Observe(ev.Begun.Sub(t.begin).Seconds())
			}
			m.prompt.Add(float64(ev.Usage.PromptTokens))
			m.cached.Add(float64(ev.Usage.CachedTokens))
		} else {
			m.itl.Observe(now.Sub(t.last).Seconds())
			m.recentITL.Observe(now.Sub(t.last).Seconds())
		}
		t.last = now
		m.generated.Inc()
		m.rate.add(now)
	}
	if ev.Finish != "" && ev.Finish != llm.FinishAbort {
		m.e2e.Observe(now.Sub(t.begin).Seconds())
	}
}

// meter counts events per second, over the last meterSeconds.
type meter struct {
	mu     sync.Mutex
	second int64 // that the newest count is of
	counts [meterSeconds]int64
}

const meterSeconds = 5

func (m *meter) add(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now.Unix())
	m.counts[m.second%meterSeconds]++
}

func (m *meter) perSecond(now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now.Unix())
	sum := int64(0)
	for _, n := range m.counts {
		sum += n
	}
	return float64(sum) / meterSeconds
}

// advance forgets what is too old.
func (m *meter) advance(second int64) {
	m.second = max(m.second, second-meterSeconds)
	for m.second < second {
		m.second++
		m.counts[m.second%meterSeconds] = 0
	}
}

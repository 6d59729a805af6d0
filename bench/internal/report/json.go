package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/record"
)

// jsonResult has the keys of sglang's result line, then our own. A figure
// without a sample is null: JSON has no NaN.
type jsonResult struct {
	Tag                    *string           `json:"tag"`
	Backend                string            `json:"backend"`
	DatasetName            string            `json:"dataset_name"`
	RequestRate            any               `json:"request_rate"`
	MaxConcurrency         *int              `json:"max_concurrency"`
	ShareGPTOutputLen      *int              `json:"sharegpt_output_len"`
	RandomInputLen         *int              `json:"random_input_len"`
	RandomOutputLen        *int              `json:"random_output_len"`
	RandomRangeRatio       *float64          `json:"random_range_ratio"`
	ServerInfo             json.RawMessage   `json:"server_info"`
	Duration               float64           `json:"duration"`
	Completed              int               `json:"completed"`
	TotalInputTokens       *int              `json:"total_input_tokens"`
	TotalInputTextTokens   *int              `json:"total_input_text_tokens"`
	TotalInputVisionTokens int               `json:"total_input_vision_tokens"`
	TotalOutputTokens      int               `json:"total_output_tokens"`
	TotalOutputRetokenized int               `json:"total_output_tokens_retokenized"`
	RequestThroughput      *float64          `json:"request_throughput"`
	InputThroughput        *float64          `json:"input_throughput"`
	OutputThroughput       *float64          `json:"output_throughput"`
	TotalThroughput        *float64          `json:"total_throughput"`
	MeanE2E                *float64          `json:"mean_e2e_latency_ms"`
	MedianE2E              *float64          `json:"median_e2e_latency_ms"`
	StdE2E                 *float64          `json:"std_e2e_latency_ms"`
	P90E2E                 *float64          `json:"p90_e2e_latency_ms"`
	P95E2E                 *float64          `json:"p95_e2e_latency_ms"`
	P99E2E                 *float64          `json:"p99_e2e_latency_ms"`
	MeanTTFT               *float64          `json:"mean_ttft_ms"`
	MedianTTFT             *float64          `json:"median_ttft_ms"`
	StdTTFT                *float64          `json:"std_ttft_ms"`
	P90TTFT                *float64          `json:"p90_ttft_ms"`
	P95TTFT                *float64          `json:"p95_ttft_ms"`
	P99TTFT                *float64          `json:"p99_ttft_ms"`
	MeanTPOT               *float64          `json:"mean_tpot_ms"`
	MedianTPOT             *float64          `json:"median_tpot_ms"`
	StdTPOT                *float64          `json:"std_tpot_ms"`
	P90TPOT                *float64          `json:"p90_tpot_ms"`
	P95TPOT                *float64          `json:"p95_tpot_ms"`
	P99TPOT                *float64          `json:"p99_tpot_ms"`
	MeanITL                *float64          `json:"mean_itl_ms"`
	MedianITL              *float64          `json:"median_itl_ms"`
	StdITL                 *float64          `json:"std_itl_ms"`
	P90ITL                 *float64          `json:"p90_itl_ms"`
	P95ITL                 *float64          `json:"p95_itl_ms"`
	P99ITL                 *float64          `json:"p99_itl_ms"`
	Concurrency            *float64          `json:"concurrency"`
	AcceptLength           *float64          `json:"accept_length"`
	MaxOutputTokensPerS    float64           `json:"max_output_tokens_per_s"`
	MaxConcurrentRequests  int               `json:"max_concurrent_requests"`
	Model                  string            `json:"model"`
	Seed                   uint64            `json:"seed"`
	NumRequests            int               `json:"num_requests"`
	MaxTokens              int               `json:"max_tokens"`
	InputWords             int               `json:"input_words"`
	Sent                   int               `json:"sent"`
	Failed                 int               `json:"failed"`
	Failures               []reason          `json:"failures"`
	Interrupted            bool              `json:"interrupted"`
	MaxITL                 *float64          `json:"max_itl_ms"`
	P99QueuedE2E           *float64          `json:"p99_queued_e2e_latency_ms"`
	ScheduledRate          *float64          `json:"scheduled_request_rate"`
	SentRate               *float64          `json:"sent_request_rate"`
	MaxClientLag           float64           `json:"max_client_lag_ms"`
	TokenSources           []string          `json:"token_sources"`
	Retokenizer            *string           `json:"retokenizer"`
	ServerPromptTokens     int               `json:"server_prompt_tokens"`
	Notes                  map[string]string `json:"notes,omitempty"`
	*goodput
	Cache *cacheReport `json:"cache_report,omitempty"`
	*details
}

type goodput struct {
	SLOs       map[string]float64 `json:"goodput_slos_ms"`
	Rate       float64            `json:"request_goodput"`
	Attainment float64            `json:"slo_attainment"`
	ByMetric   map[string]float64 `json:"slo_attainment_by_metric"`
}

type cacheReport struct {
	Prompt  int     `json:"total_prompt_tokens"`
	Cached  int     `json:"total_cached_tokens"`
	HitRate float64 `json:"cache_hit_rate_pct"`
}

type reason struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	First string `json:"first_error"`
}

// details has an entry for each request that was sent; times are in seconds.
type details struct {
	InputLens      []int       `json:"input_lens"`
	OutputLens     []int       `json:"output_lens"`
	TTFTs          []*float64  `json:"ttfts"`
	ITLs           [][]float64 `json:"itls"`
	GeneratedTexts []string    `json:"generated_texts"`
	Errors         []string    `json:"errors"`
	CachedTokens   []int       `json:"cached_tokens"`
	IntendedTimes  []float64   `json:"intended_times"`
	StartTimes     []float64   `json:"start_times"`
	Latencies      []float64   `json:"latencies"`
}

// WriteJSON writes the result as one line of JSON. If records is not nil, the
// line also has what was observed of each request.
func WriteJSON(w io.Writer, r *Result, records []record.Record) error {
	line := newJSON(r)
	if records != nil {
		line.details = newDetails(records)
	}
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("report: encoding the result: %w", err)
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("report: writing the result: %w", err)
	}
	return nil
}

func newJSON(r *Result) jsonResult {
	j := jsonResult{
		Backend:               r.Backend,
		DatasetName:           cmp.Or(r.Dataset, "builtin"),
		ServerInfo:            r.ServerInfo,
		ServerPromptTokens:    r.ServerInput,
		RequestRate:           r.Rate,
		Duration:              r.Duration.Seconds(),
		Completed:             r.Completed,
		MaxOutputTokensPerS:   r.PeakOutput,
		MaxConcurrentRequests: r.PeakConcurrency,
		Model:                 r.Model,
		Seed:                  r.Seed,
		NumRequests:           r.NumRequests,
		MaxTokens:             r.MaxTokens,
		InputWords:            r.InputWords,
		Sent:                  r.Sent,
		Failed:                r.Failed,
		Failures:              []reason{},
		Interrupted:           r.Interrupted,
		MaxClientLag:          float64(r.MaxLag.Nanoseconds()) / 1e6,
		TokenSources:          []string{},
	}
	switch {
	case r.Trace:
		j.RequestRate = "trace"
	case math.IsInf(r.Rate, 1):
		j.RequestRate = "inf"
	}
	if r.MaxConcurrency > 0 {
		j.MaxConcurrency = &r.MaxConcurrency
	}
	for _, f := range r.Failures {
		j.Failures = append(j.Failures, reason{f.Label, f.Count, f.First})
	}
	for source := record.NoTokens; source <= record.Chunks; source++ {
		if r.Sources[source] > 0 {
			j.TokenSources = append(j.TokenSources, source.String())
		}
	}
	j.tokens(r)
	j.latencies(r)
	j.asked(r)
	j.goodput = newGoodput(r.Goodput)
	if r.CacheReport {
		prompt, rate := r.cached()
		j.Cache = &cacheReport{prompt, r.CachedTokens, math.Round(rate*10000) / 100}
	}
	return j
}

// asked fills in what only some programs have.
func (j *jsonResult) asked(r *Result) {
	if r.Tag != "" {
		j.Tag = &r.Tag
	}
	if l := r.Lens; l != nil {
		j.RandomInputLen, j.RandomOutputLen, j.RandomRangeRatio = &l.RandomInput, &l.RandomOutput, &l.RangeRatio
		if l.ShareGPTOutput > 0 {
			j.ShareGPTOutputLen = &l.ShareGPTOutput
		}
	}
	j.AcceptLength = known(r.AcceptLength, r.AcceptLength > 0)
	if r.Retokenizer != "" {
		j.Retokenizer = &r.Retokenizer
	}
	if len(r.Notes) > 0 {
		j.Notes = map[string]string{}
	}
	for _, note := range r.Notes {
		j.Notes[note[0]] = note[1]
	}
}

func newGoodput(g *metrics.Goodput) *goodput {
	if g == nil {
		return nil
	}
	j := &goodput{SLOs: map[string]float64{}, Rate: g.Rate, Attainment: g.Share(g.Good), ByMetric: map[string]float64{}}
	for i, slo := range g.SLOs {
		j.SLOs[slo.Name], j.ByMetric[slo.Name] = slo.Limit, g.Share(g.Met[i])
	}
	return j
}

func (j *jsonResult) tokens(r *Result) {
	timed := r.Duration > 0
	if r.InputKnown {
		j.TotalInputTokens, j.TotalInputTextTokens = &r.InputTokens, &r.InputTokens
	}
	j.TotalOutputTokens, j.TotalOutputRetokenized = r.OutputTokens, r.retokenized()
	j.RequestThroughput = known(r.RequestThroughput, timed)
	j.InputThroughput = known(r.InputThroughput, timed && r.InputKnown)
	j.OutputThroughput = known(r.OutputThroughput, timed)
	j.TotalThroughput = known(r.TotalThroughput, timed && r.InputKnown)
	j.Concurrency = known(r.Concurrency, timed)
	j.ScheduledRate = known(r.ScheduledRate, r.ScheduledRate > 0)
	j.SentRate = known(r.SentRate, r.SentRate > 0)
}

func (j *jsonResult) latencies(r *Result) {
	for _, set := range []struct {
		from                             metrics.Stats
		mean, median, std, p90, p95, p99 **float64
	}{
		{r.E2E, &j.MeanE2E, &j.MedianE2E, &j.StdE2E, &j.P90E2E, &j.P95E2E, &j.P99E2E},
		{r.TTFT, &j.MeanTTFT, &j.MedianTTFT, &j.StdTTFT, &j.P90TTFT, &j.P95TTFT, &j.P99TTFT},
		{r.TPOT, &j.MeanTPOT, &j.MedianTPOT, &j.StdTPOT, &j.P90TPOT, &j.P95TPOT, &j.P99TPOT},
		{r.ITL, &j.MeanITL, &j.MedianITL, &j.StdITL, &j.P90ITL, &j.P95ITL, &j.P99ITL},
	} {
		some := set.from.Count > 0
		*set.mean, *set.median, *set.std = known(set.from.Mean, some), known(set.from.Median, some), known(set.from.Std, some)
		*set.p90, *set.p95, *set.p99 = known(set.from.P90, some), known(set.from.P95, some), known(set.from.P99, some)
	}
	j.MaxITL = known(r.ITL.Max, r.ITL.Count > 0)
	j.P99QueuedE2E = known(r.QueuedE2E.P99, r.QueuedE2E.Count > 0)
}

func known(v float64, ok bool) *float64 {
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func newDetails(records []record.Record) *details {
	d := &details{
		InputLens: []int{}, OutputLens: []int{}, TTFTs: []*float64{}, ITLs: [][]float64{}, GeneratedTexts: []string{},
		Errors: []string{}, CachedTokens: []int{}, IntendedTimes: []float64{}, StartTimes: []float64{}, Latencies: []float64{},
	}
	for i := range records {
		r := &records[i]
		var ttft *float64
		if len(r.Tokens) > 0 && !r.WholeAnswer {
			ttft = known((r.Tokens[0] - r.Start).Seconds(), true)
		}
		itls := []float64{}
		for _, gap := range metrics.Gaps(r) {
			itls = append(itls, gap/1000)
		}
		input := r.InputLen
		if input < 0 {
			input = max(r.PromptTokens, 0)
		}
		d.InputLens = append(d.InputLens, input)
		d.CachedTokens = append(d.CachedTokens, max(r.CachedTokens, 0))
		d.OutputLens = append(d.OutputLens, len(r.Tokens))
		d.TTFTs = append(d.TTFTs, ttft)
		d.ITLs = append(d.ITLs, itls)
		d.GeneratedTexts = append(d.GeneratedTexts, r.Text)
		d.Errors = append(d.Errors, r.Err)
		d.IntendedTimes = append(d.IntendedTimes, r.Intended.Seconds())
		d.StartTimes = append(d.StartTimes, r.Start.Seconds())
		d.Latencies = append(d.Latencies, (r.End() - r.Start).Seconds())
	}
	return d
}

package metrics

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/minisgl/minisgl/bench/internal/record"
)

const ms = time.Millisecond

func series(n int, f func(i int) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// Right values are those of numpy 2.4.6: mean, median, std, percentile.
func TestDescribeAgainstNumpy(t *testing.T) {
	tests := []struct {
		values []float64
		want   Stats
	}{
		{nil, Stats{}},
		{[]float64{3.5}, Stats{1, 3.5, 3.5, 0, 3.5, 3.5, 3.5, 3.5}},
		{[]float64{1, 2}, Stats{2, 1.5, 1.5, 0.5, 1.9, 1.95, 1.99, 2}},
		{[]float64{15.2, 3.1, 8.8, 41.0, 7.7}, Stats{5, 15.16, 8.8, 13.485191878501396, 30.68, 35.839999999999996, 39.967999999999996, 41}},
		{series(101, func(i int) float64 { return float64(i*37%101) / 7 }),
			Stats{101, 7.142857142857143, 7.142857142857143, 4.164965639175215, 12.857142857142858, 13.571428571428571, 14.142857142857142, 100.0 / 7}},
		{series(24, func(i int) float64 { return 0.1 * float64(i) * float64(i) }),
			Stats{24, 18.01666666666667, 13.250000000000002, 16.484883648023995, 42.87, 47.754999999999995, 51.865, 0.1 * 23 * 23}},
	}
	for _, tt := range tests {
		got := Describe(slices.Clone(tt.values))
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(1e-14, 0)); diff != "" {
			t.Errorf("%d values (-want +got):\n%s", len(tt.values), diff)
		}
	}
}

// request has tokens at the given milliseconds.
func request(start, done int, first int, tokens ...int) record.Record {
	r := record.Record{Intended: time.Duration(start) * ms, Start: time.Duration(start) * ms, Done: time.Duration(done) * ms, FirstChunk: first, InputLen: -1, PromptTokens: 10, CachedTokens: -1, Retokenized: -1, Source: record.ContinuousUsage}
	for _, at := range tokens {
		r.Tokens = append(r.Tokens, time.Duration(at)*ms)
	}
	r.MaxTokens = len(tokens)
	return r
}

func TestSummarize(t *testing.T) {
	queued := request(500, 2100, 1, 1100, 1600, 2000)
	queued.Intended = 400 * ms
	queued.Released = 403 * ms
	short := request(700, 900, 1, 900) // one token: no TPOT, no ITL
	short.MaxTokens = 5
	failed := record.Record{Start: 600 * ms, Intended: 600 * ms, Done: 2500 * ms, Kind: record.Timeout, Err: "slow", Tokens: []time.Duration{1200 * ms, 1300 * ms}, InputLen: -1, PromptTokens: -1}
	got := Summarize([]record.Record{request(100, 1000, 2, 300, 300, 400, 500), queued, short, failed})
	want := Summary{
		Sent: 4, Completed: 3, Failed: 1, Failures: []Failure{{"timeout", 1, "slow"}},
		Duration: 2400 * ms, InputTokens: 30, InputKnown: true, OutputTokens: 8, Retokenized: -1, ServerInput: 30, ShortOutputs: 1,
		Sources:           map[record.TokenSource]int{record.ContinuousUsage: 3},
		RequestThroughput: 3 / 2.4, InputThroughput: 30 / 2.4, OutputThroughput: 8 / 2.4, TotalThroughput: 38 / 2.4,
		// Seconds count from the first dispatch at 100 ms: tokens at 300, 300, 400, 500 and 900, then 1100, 1600 and 2000.
		PeakOutput: 5,
		// In flight: 100-1000, 500-2100, 700-900, 600-2500.
		PeakConcurrency: 4,
		Concurrency:     (400.0 + 1500 + 200) / 2400,
		E2E:             Describe([]float64{400, 1500, 200}),
		QueuedE2E:       Describe([]float64{400, 1600, 200}),
		TTFT:            Describe([]float64{200, 600, 200}),
		TPOT:            Describe([]float64{200.0 / 3, 450}),
		ITL:             Describe([]float64{100, 100, 500, 400}),
		ScheduledRate:   3 / 0.6, SentRate: 3 / 0.6, MaxLag: 3 * ms,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestTimeline(t *testing.T) {
	failed := request(1000, 2500, 1, 1100)
	failed.Kind = record.Timeout
	records := []record.Record{request(500, 1700, 1, 600, 1500, 1700), request(1500, 1600, 1, 1600), failed}
	got, width := Timeline(records, 60)
	if diff := cmp.Diff([]Slice{{1, 2}, {3, 3}, {0, 1}}, got); diff != "" || width != time.Second {
		t.Errorf("slices of %v (-want +got):\n%s", width, diff)
	}
	got, width = Timeline(records, 2)
	if diff := cmp.Diff([]Slice{{4, 3}, {0, 1}}, got); diff != "" || width != 2*time.Second {
		t.Errorf("slices of %v (-want +got):\n%s", width, diff)
	}
	if got, _ := Timeline(nil, 60); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func TestPeakConcurrencyEndsBeforeStarts(t *testing.T) {
	chain := []record.Record{request(0, 100, 1), request(100, 200, 1), request(200, 300, 1)}
	if got := Summarize(chain).PeakConcurrency; got != 1 {
		t.Errorf("one after the other: %d, want 1", got)
	}
}

func TestSummarizeWithoutSamples(t *testing.T) {
	for name, records := range map[string][]record.Record{
		"nothing sent": nil,
		"all failed":   {{Kind: record.Connect, PromptTokens: -1}, {Kind: record.HTTPStatus, Status: 500, PromptTokens: -1}},
		"no tokens":    {{InputLen: -1, PromptTokens: -1}},
	} {
		s := Summarize(records)
		if s.TTFT.Count != 0 || s.TPOT.Count != 0 || s.ITL.Count != 0 || s.Completed+s.Failed != s.Sent {
			t.Errorf("%s: %+v", name, s)
		}
		for _, v := range []float64{s.RequestThroughput, s.OutputThroughput, s.Concurrency, s.ScheduledRate, s.E2E.P99} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s: a figure is %v", name, v)
			}
		}
	}
}

func TestFailuresAreOrdered(t *testing.T) {
	records := []record.Record{
		{Kind: record.Timeout, Err: "t"}, {Kind: record.HTTPStatus, Status: 429, Err: "a"}, {Kind: record.HTTPStatus, Status: 429, Err: "b"},
		{Kind: record.HTTPStatus, Status: 500, Err: "c"},
	}
	want := []Failure{{"http 429", 2, "a"}, {"timeout", 1, "t"}, {"http 500", 1, "c"}}
	if diff := cmp.Diff(want, Summarize(records).Failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

// Little's law: the mean concurrency cannot exceed the peak, nor the mean rate
// of tokens the peak by more than rounding to whole seconds allows.
func TestSummaryBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record.Record {
			start := rapid.IntRange(0, 3000).Draw(t, "start")
			tokens := rapid.SliceOfN(rapid.IntRange(start, start+3000), 1, 20).Draw(t, "tokens")
			slices.Sort(tokens)
			return request(start, tokens[len(tokens)-1]+1, 1, tokens...)
		}), 1, 20).Draw(t, "records")
		s := Summarize(records)
		if s.Concurrency > float64(s.PeakConcurrency) {
			t.Errorf("mean concurrency %v above the peak %d", s.Concurrency, s.PeakConcurrency)
		}
		if seconds := math.Ceil(s.Duration.Seconds()); s.PeakOutput*seconds < float64(s.OutputTokens) {
			t.Errorf("peak %v too low for %d tokens in %v s", s.PeakOutput, s.OutputTokens, seconds)
		}
		if s.ITL.Count != s.OutputTokens-len(records) {
			t.Errorf("%d gaps between %d tokens of %d requests", s.ITL.Count, s.OutputTokens, len(records))
		}
	})
}

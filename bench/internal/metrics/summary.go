// Package metrics computes the figures of a benchmark from the records of its
// requests. All functions are pure. The definitions are those of sglang's serving
// benchmark for its native API, with the token as the unit everywhere:
//
//   - TTFT: from sending to the first output token, whatever channel it is in.
//   - E2E: from sending to the last output token.
//   - ITL: gap between tokens; the k tokens of one chunk share its gap, and the
//     first chunk has none.
//   - TPOT: (E2E-TTFT)/(n-1) of a request with n > 1 tokens; others have none.
//
// Latencies come from successful requests only.
package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/minisgl/minisgl/bench/internal/record"
)

// Summary holds the figures of one run. Latencies are in milliseconds.
type Summary struct {
	Sent, Completed, Failed int
	Failures                []Failure // most frequent first

	Duration     time.Duration // first dispatch to the end of the last request
	InputTokens  int           // of successes: as the load generator counts them, else as the server reported
	InputKnown   bool          // either is known of each success
	InputCounted bool          // the load generator counted all of them
	OutputTokens int
	Retokenized  int // tokens of the answers' text by a tokenizer; -1 if none was asked

	ServerInput  int // prompt tokens that the server reported; they include what a chat template adds
	CachedTokens int // of them found in the server's prefix cache
	CachedKnown  bool
	ShortOutputs int                        // successes with fewer tokens than asked
	Sources      map[record.TokenSource]int // successes by how their tokens were counted

	RequestThroughput float64 // requests per second
	InputThroughput   float64 // tokens per second
	OutputThroughput  float64
	TotalThroughput   float64
	PeakOutput        float64 // most tokens in one second
	PeakConcurrency   int     // most requests in flight at one time
	Concurrency       float64 // mean: sum of E2E over Duration

	E2E, TTFT, TPOT, ITL Stats
	QueuedE2E            Stats // from the intended start instead of the actual one

	ScheduledRate, SentRate float64       // requests per second; 0 if all were due, or sent, at once
	MaxLag                  time.Duration // how late the client got to a request
}

// Failure counts one way to fail.
type Failure struct {
	Label string
	Count int
	First string // error text of the first one
}

// Summarize computes the figures of the requests that were sent.
func Summarize(records []record.Record) Summary {
	s := Summary{Sent: len(records), InputKnown: true, InputCounted: true, Retokenized: -1, Sources: map[record.TokenSource]int{}}
	if len(records) == 0 {
		return s
	}
	begin, end := records[0].Start, records[0].Done
	for i := range records {
		begin = min(begin, records[i].Start)
		end = max(end, records[i].Done)
		s.MaxLag = max(s.MaxLag, records[i].Released-records[i].Intended)
	}
	s.Duration = end - begin
	s.Failures = failures(records)
	s.ScheduledRate = rate(records, func(r *record.Record) time.Duration { return r.Intended })
	s.SentRate = rate(records, func(r *record.Record) time.Duration { return r.Start })
	s.PeakOutput = float64(peakTokens(records, begin))
	s.PeakConcurrency = peakConcurrency(records)
	s.latencies(records)
	s.throughput()
	return s
}

// latencies adds up the successes.
func (s *Summary) latencies(records []record.Record) {
	var e2e, ttft, tpot, itl, queued []float64
	for i := range records {
		r := &records[i]
		if !r.OK() {
			s.Failed++
			continue
		}
		s.Completed++
		s.Sources[r.Source]++
		s.prompt(r)
		n := len(r.Tokens)
		s.OutputTokens += n
		if n < r.MaxTokens {
			s.ShortOutputs++
		}
		e2e = append(e2e, millis(r.End()-r.Start))
		queued = append(queued, millis(r.End()-r.Intended))
		if r.WholeAnswer {
			continue
		}
		if n > 0 {
			ttft = append(ttft, millis(r.Tokens[0]-r.Start))
		}
		if n > 1 {
			tpot = append(tpot, millis(r.End()-r.Tokens[0])/float64(n-1))
		}
		itl = append(itl, Gaps(r)...)
	}
	total := 0.0
	for _, v := range e2e {
		total += v
	}
	if s.Duration > 0 {
		s.Concurrency = total / millis(s.Duration)
	}
	s.E2E, s.QueuedE2E = Describe(e2e), Describe(queued)
	s.TTFT, s.TPOT, s.ITL = Describe(ttft), Describe(tpot), Describe(itl)
}

// prompt adds up the counts of a prompt, and the retokenized ones of its answer.
func (s *Summary) prompt(r *record.Record) {
	n := r.InputLen
	if n < 0 {
		n = r.PromptTokens
		s.InputCounted = false
	}
	s.InputTokens += max(n, 0)
	s.InputKnown = s.InputKnown && n >= 0
	s.ServerInput += max(r.PromptTokens, 0)
	s.CachedTokens += max(r.CachedTokens, 0)
	s.CachedKnown = s.CachedKnown || r.CachedTokens >= 0
	if r.Retokenized >= 0 {
		s.Retokenized = max(s.Retokenized, 0) + r.Retokenized
	}
}

func (s *Summary) throughput() {
	seconds := s.Duration.Seconds()
	if seconds <= 0 {
		return
	}
	s.RequestThroughput = float64(s.Completed) / seconds
	s.InputThroughput = float64(s.InputTokens) / seconds
	s.OutputThroughput = float64(s.OutputTokens) / seconds
	s.TotalThroughput = float64(s.InputTokens+s.OutputTokens) / seconds
}

// Gaps returns the inter-token latencies of a request in milliseconds.
func Gaps(r *record.Record) []float64 {
	var gaps []float64
	for i := max(r.FirstChunk, 1); i < len(r.Tokens); i++ {
		gaps = append(gaps, millis(r.Tokens[i]-r.Tokens[i-1]))
	}
	return gaps
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func failures(records []record.Record) []Failure {
	index := map[string]int{}
	var out []Failure
	for i := range records {
		r := &records[i]
		if r.OK() {
			continue
		}
		label := r.FailureLabel()
		at, seen := index[label]
		if !seen {
			at = len(out)
			index[label] = at
			out = append(out, Failure{Label: label, First: r.Err})
		}
		out[at].Count++
	}
	slices.SortStableFunc(out, func(a, b Failure) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// rate returns events per second between the first and the last; 0 if they coincide.
func rate(records []record.Record, at func(*record.Record) time.Duration) float64 {
	first, last := at(&records[0]), at(&records[0])
	for i := range records {
		first = min(first, at(&records[i]))
		last = max(last, at(&records[i]))
	}
	if last <= first {
		return 0
	}
	return float64(len(records)-1) / (last - first).Seconds()
}

// peakTokens returns the most tokens of successes in one of the seconds counted from begin.
func peakTokens(records []record.Record, begin time.Duration) int {
	buckets := map[time.Duration]int{}
	peak := 0
	for i := range records {
		if !records[i].OK() {
			continue
		}
		for _, at := range records[i].Tokens {
			second := (at - begin) / time.Second
			buckets[second]++
			peak = max(peak, buckets[second])
		}
	}
	return peak
}

// peakConcurrency returns the most requests in flight at one time.
func peakConcurrency(records []record.Record) int {
	now, peak := 0, 0
	for _, c := range inFlight(records) {
		now += c.delta
		peak = max(peak, now)
	}
	return peak
}

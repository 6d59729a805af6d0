package server

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

func TestStats(t *testing.T) {
	e := newFake(token("a", 1), token("b", 2), atEOS(2))
	e.algorithm = "NGRAM"
	s := newServer(t, e, Config{Version: "1.2", MaxRunning: 8, Flags: map[string]string{"page-size": "4"}})
	url, _ := listen(t, s)
	begin := s.started.Truncate(time.Second).Add(time.Second)
	s.sample(begin)
	for range 5 {
		do(s, "POST", chatPath, `{`+hi+`}`)
	}
	do(s, "POST", chatPath, `{`+hi+`,"stop":"b"}`)
	s.sample(begin.Add(2 * time.Second))
	conn := dial(t, url, "/ws/stats")
	var hello openai.StatsHello
	if err := conn.ReadJSON(&hello); err != nil {
		t.Fatal(err)
	}
	history := hello.History
	hello.History = nil
	want := openai.StatsHello{
		V: 1, Type: "hello", Version: "1.2", Started: unixSeconds(s.started), Flags: map[string]string{"page-size": "4"},
		Model: openai.StatsModel{
			Name: "org/fake", Path: "/models/fake", Architecture: "FakeForCausalLM", DType: "float32", KVCacheDType: "bfloat16", Device: "none",
			ContextLength: 64, PageSize: 4, MaxRunning: 8, Speculation: "NGRAM",
		},
		Interval: 1, Window: 30, Keep: 300,
	}
	if diff := cmp.Diff(want, hello); diff != "" {
		t.Errorf("hello (-want +got):\n%s", diff)
	}
	if len(history) != 2 || history[0].DecodeRate != 0 || history[0].TTFT != nil || history[0].ITL != nil {
		t.Fatalf("the history is %+v", history)
	}
	got := history[1]
	for _, p := range []*openai.Percentiles{got.TTFT, got.ITL} {
		if p == nil || p.P50 < 0 || p.P90 < p.P50 || p.P99 < p.P90 || p.P99 > 20000 {
			t.Errorf("percentiles %+v", p)
		}
	}
	got.TTFT, got.ITL, got.Uptime = nil, nil, 0
	wantStats := openai.ServerStats{
		V: 1, Type: "stats", Time: unixSeconds(begin.Add(2 * time.Second)), Status: "ok", DecodeRate: 6,
		Pages:    openai.PageStats{Total: 100, Free: 50, Cached: 25, InUse: 25},
		Cache:    openai.CacheStats{HitRate: 0.25, Nodes: 7, Tokens: 120},
		Requests: openai.RequestStats{Started: 6},
		Tokens:   openai.TokenStats{Prompt: 18, Cached: 6, Completion: 12, Draft: 8, Accepted: 6},
	}
	if diff := cmp.Diff(wantStats, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	s.sample(begin.Add(3 * time.Second))
	var live openai.ServerStats
	if err := conn.ReadJSON(&live); err != nil || live.Time != unixSeconds(begin.Add(3*time.Second)) || live.DecodeRate != 0 {
		t.Errorf("got %+v, %v", live, err)
	}
}

// A subscriber that doesn't read misses samples; it holds up nobody.
func TestStatsSlowReader(t *testing.T) {
	s := newServer(t, newFake(), Config{})
	_, slow, leave := s.stats.subscribe()
	_, quick, leaveToo := s.stats.subscribe()
	begin := time.Unix(1000, 0)
	for i := range statsKept + 10 {
		s.sample(begin.Add(time.Duration(i) * time.Second))
		var got openai.ServerStats
		if err := json.Unmarshal(<-quick, &got); err != nil || got.Time != float64(1000+i) {
			t.Fatalf("sample %d is %+v, %v", i, got, err)
		}
	}
	if len(slow) != statsWaiting {
		t.Errorf("%d samples wait", len(slow))
	}
	leave()
	leaveToo()
	history, _, leave := s.stats.subscribe()
	leave()
	if len(history) != statsKept || history[0].Time != 1010 || history[statsKept-1].Time != 1309 || len(s.stats.subscribers) != 0 {
		t.Errorf("%d samples are kept, from %v; %d subscribers", len(history), history[0].Time, len(s.stats.subscribers))
	}
}

func TestPercentiles(t *testing.T) {
	m := newMetrics(newFake(), "m")
	if got := percentiles(m.recentITL); got != nil {
		t.Errorf("nothing gives %+v", got)
	}
	for i := range 1000 {
		m.recentITL.Observe(float64((i*7)%1000) / 1000)
	}
	got := percentiles(m.recentITL)
	for _, q := range []struct{ got, want float64 }{{got.P50, 500}, {got.P90, 900}, {got.P99, 990}} {
		if q.got < q.want-11 || q.got > q.want+11 {
			t.Errorf("got %v, want about %v", q.got, q.want)
		}
	}
	m.observe(&timer{begin: time.Now().Add(-time.Second)}, llm.Event{HasToken: true})
	if got := percentiles(m.recentTTFT); got.P50 < 1000 || got.P50 > 20000 {
		t.Errorf("a time of a second gives %+v", got)
	}
}

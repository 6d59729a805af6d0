package top

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/go/openai"
)

func example() *state {
	s := &state{hello: &openai.StatsHello{Window: 60, Keep: 3, Model: openai.StatsModel{
		Name: "smollm2", Device: "cpu (avx2)", Threads: 2, DType: "bfloat16", MaxRunning: 8,
	}}}
	for i := range 4 {
		s.add(openai.ServerStats{
			Uptime: 3723, Status: "ok", PrefillRate: float64(100 * i), DecodeRate: 12.25, Running: 2 * i, Queued: 3 - i,
			Pages: openai.PageStats{Total: 100, Free: 49, Cached: 50, InUse: 1}, Cache: openai.CacheStats{HitRate: 0.456, Nodes: 7, Tokens: 50},
			Requests: openai.RequestStats{Started: 9, Finished: 5, Aborted: 1, Preemptions: 2}, Tokens: openai.TokenStats{Prompt: 90, Cached: 41, Completion: 33},
			TTFT: &openai.Percentiles{P50: 1, P90: 20.25, P99: 300},
		})
	}
	return s
}

func TestView(t *testing.T) {
	want := `smollm2  cpu (avx2), 2 threads, bfloat16  up 1h2m3s  ok

prefill         ▃▆█  300.0 tok/s
decode          ███  12.2 tok/s
queued          █▅▁  0 requests
running  ███████░░░  6 of 8 requests
KV pages █▒▒▒▒▒░░░░  █ 1 used ▒ 50 cached
                     ░ 49 free of 100
TTFT     P50 1.0  P90 20.2  P99 300.0 ms  (last 60 s)
ITL      none  (last 60 s)

cache    45.6 % hits, 7 nodes, 50 tokens
requests 9 started, 5 finished, 1 aborted, 2 preemptions
tokens   90 prompt (41 cached), 33 generated`
	got := example().lines(&url.URL{}, labelWidth+10+valueWidth)
	if diff := cmp.Diff(strings.Split(want, "\n"), got); diff != "" {
		t.Error(diff)
	}
}

func TestViewWithTrouble(t *testing.T) {
	server := &url.URL{Scheme: "http", Host: "a:1"}
	var s state
	if diff := cmp.Diff([]string{"connecting to http://a:1"}, s.lines(server, 80)); diff != "" {
		t.Error(diff)
	}
	s.trouble = errors.New("no server")
	if diff := cmp.Diff([]string{"no server"}, s.lines(server, 80)); diff != "" {
		t.Error(diff)
	}
	known := example()
	known.trouble = errors.New("the server has closed the connection")
	lines := known.lines(server, 80)
	if got := lines[len(lines)-1]; got != "the server has closed the connection" {
		t.Errorf("the last line is %q", got)
	}
}

func TestScreenFitsTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{200, 50}, {80, 24}, {30, 5}, {1, 1}} {
		var out bytes.Buffer
		o := Options{Out: &out, Server: &url.URL{}, Size: func() (int, int) { return size[0], size[1] }}
		if err := draw(o, example()); err != nil {
			t.Fatal(err)
		}
		rows := strings.Split(out.String(), "\r\n")
		if len(rows) > size[1] {
			t.Errorf("%v: %d rows", size, len(rows))
		}
		for _, row := range rows {
			row = strings.NewReplacer(home, "", clearLine, "", clearRest, "").Replace(row)
			if n := len([]rune(row)); n > size[0] {
				t.Errorf("%v: %d columns: %q", size, n, row)
			}
		}
	}
}

func TestDrawings(t *testing.T) {
	bars := []struct {
		total, used, kept int
		want              string
	}{
		{10, 5, 5, "█████▒▒▒▒▒"}, {10, 0, 0, "░░░░░░░░░░"}, {1000, 1, 1, "█▒░░░░░░░░"}, {0, 0, 0, "░░░░░░░░░░"}, {1000, 1000, 1, "██████████"},
	}
	for _, b := range bars {
		if got := bar(10, b.total, b.used, b.kept); got != b.want {
			t.Errorf("%+v: got %q", b, got)
		}
	}
	for want, values := range map[string][]float64{"   ": nil, "  ▁": {0}, " ▁█": {0, 5}, "▃▅█": {9, 2, 4, 7.9}} {
		if got := sparkline(values, 3); got != want {
			t.Errorf("%v: got %q, want %q", values, got, want)
		}
	}
}

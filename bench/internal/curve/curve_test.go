package curve

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minisgl/minisgl/bench/internal/metrics"
)

func point(load, p99 float64) Point {
	return Point{Load: load, Summary: metrics.Summary{
		Sent: 100, Completed: 100, OutputThroughput: load * 10, RequestThroughput: load,
		TTFT: metrics.Stats{Count: 100, Median: p99 / 2, P99: p99}, TPOT: metrics.Stats{Count: 100, Median: 5, P99: 6},
	}}
}

func TestFindKnee(t *testing.T) {
	failing := point(4, 60)
	failing.Failed = 2
	empty := point(8, 0)
	empty.TTFT = metrics.Stats{}
	late := point(8, 100)
	late.SentRate, late.RequestThroughput, late.E2E = 8, 5, metrics.Stats{Count: 100, P99: 4000}
	short := late
	short.E2E.P99 = 5000 // sending 100 requests took 12.5 s
	for _, tt := range []struct {
		name   string
		points []Point
		want   string
	}{
		{"a jump", []Point{point(1, 50), point(2, 60), point(4, 70), point(8, 400)}, "between 4 and 8 (P99 TTFT is 400 ms, 8.0 times the lowest). Capacity of one replica: 4.00; with headroom (x0.8): 3.20. At 4 it answered 4.00 req/s."},
		{"slow growth", []Point{point(1, 50), point(2, 90), point(4, 140)}, "No knee up to 4"},
		{"noise on a fast server", []Point{point(1, 2), point(2, 9), point(4, 30)}, "No knee up to 4"},
		{"failures", []Point{point(1, 50), failing}, "between 1 and 4 (2 of 100 requests failed)"},
		{"nothing came", []Point{empty}, "The knee is below 8, the lowest load tried (no request had a first token)"},
		{"falls behind", []Point{point(1, 50), late}, "(the server answered 5.00 of 8.00 req/s)"},
		{"too short to tell", []Point{point(1, 50), short}, "No knee up to 8"},
		{"back to normal later", []Point{point(1, 50), point(2, 900), point(4, 50)}, "between 1 and 2"},
	} {
		if got := FindKnee(Rates, tt.points).String(); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCapacity(t *testing.T) {
	points := []Point{point(4, 50), point(8, 900)}
	points[0].RequestThroughput = 3.5
	if got := FindKnee(Rates, points).Capacity(); got != 3.5 {
		t.Errorf("rate %v, want the 3.5 that were answered", got)
	}
	if got := FindKnee(Concurrencies, points).Capacity(); got != 4 {
		t.Errorf("%v in flight, want 4", got)
	}
}

func TestWriteText(t *testing.T) {
	var out bytes.Buffer
	if err := WriteText(&out, Rates, []Point{point(1, 10), point(2, 100), point(4, 1000)}); err != nil {
		t.Fatal(err)
	}
	marks := []int{}
	for line := range strings.Lines(out.String()) {
		if n := strings.Count(line, "█"); n > 0 {
			marks = append(marks, n)
		}
	}
	if len(marks) != 3 || marks[0] != 1 || marks[2] != barWidth || marks[1] != 13 {
		t.Errorf("bars %v, want 1, half, all of %d:\n%s", marks, barWidth, out.String())
	}
}

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	empty := point(8, 0)
	empty.TTFT, empty.TPOT = metrics.Stats{}, metrics.Stats{}
	if err := WritePlot(filepath.Join(dir, "a.png"), Rates, []Point{point(1, 10), point(2, 100)}); err != nil {
		t.Fatal(err)
	}
	for _, points := range [][]Point{{point(1, 10), point(2, 100)}, {point(1, 10)}, {empty}, nil} {
		svg, err := SVG(Concurrencies, points)
		if err != nil || !bytes.Contains(svg, []byte("<svg")) || !bytes.Contains(svg, []byte("requests in flight")) {
			t.Errorf("%d points: %v, %d bytes", len(points), err, len(svg))
		}
	}
	file, err := os.Open(filepath.Join(dir, "a.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := png.Decode(file); err != nil {
		t.Error(err)
	}
	if err := WritePlot("x.gif", Rates, nil); err == nil {
		t.Error("a format that is unknown: no error")
	}
}

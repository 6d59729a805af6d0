package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/minisgl/minisgl/bench/internal/record"
)

func TestJudge(t *testing.T) {
	slos, err := ParseSLOs(strings.Fields("ttft:100 tpot:50"))
	if err != nil {
		t.Fatal(err)
	}
	whole := request(0, 10, 2, 10, 10)
	whole.WholeAnswer = true
	records := []record.Record{
		request(0, 300, 1, 100, 150, 200),    // both, exactly
		request(0, 300, 1, 101, 120),         // slow start
		request(0, 300, 1, 50, 101),          // slow tokens
		request(0, 300, 1, 50),               // no gap
		whole,                                // unknown
		{Kind: record.Connect, Done: 1 * ms}, // failed
	}
	got := Judge(records, slos, 2*time.Second)
	want := Goodput{SLOs: slos, Good: 2, Sent: 6, Met: []int{3, 3}, Rate: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Share(3) != 0.5 || (Goodput{}).Share(0) != 0 {
		t.Error("shares")
	}
}

func TestParseSLOsRejects(t *testing.T) {
	for _, bad := range []string{"ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:0", "ttft:inf", "ttft:nan", "itl:5", ":5", "ttft:5 ttft:6", ""} {
		if _, err := ParseSLOs(strings.Split(bad, " ")); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

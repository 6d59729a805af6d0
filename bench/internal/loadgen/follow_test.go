package loadgen

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minisgl/minisgl/bench/internal/mockserver"
	"github.com/minisgl/minisgl/bench/internal/record"
)

// A chat's second turn waits for the first answer and holds it; the times of
// others do not change.
func TestChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mockserver.New(mockserver.Config{TTFT: 100 * ms})
		pipe := mockserver.ServePipe(server)
		defer pipe.Close()
		client := NewHTTP(HTTPOptions{Dial: pipe.Dial})
		defer client.Close()
		requests := []Request{
			{Text: "first", MaxTokens: 2},
			{Text: "alone", MaxTokens: 2},
			{Messages: json.RawMessage(`[{"role":"user","content":"first"},{"role":"assistant","content":"recorded"},{"role":"user","content":"second"}]`), MaxTokens: 2},
		}
		target := NewTarget(client, Chat, "http://mock", Options{}, requests)
		got := Run(t.Context(), target, Config{Schedule: []time.Duration{0, 10 * ms, 20 * ms}, After: []int{-1, -1, 0}})
		if len(got) != 3 || got[1].Start != 10*ms || got[2].Start != 100*ms || got[2].Intended != 100*ms {
			t.Errorf("%+v", got)
		}
		body := server.Bodies()[2]
		if !strings.Contains(body, `"content":" t0 t1"`) || strings.Contains(body, "recorded") {
			t.Errorf("the answer is not in %s", body)
		}
	})
}

// A third turn holds both answers that were given, not the recorded ones.
func TestLongChain(t *testing.T) {
	turn := func(n int) json.RawMessage {
		said := []string{`{"role":"user","content":"q0"}`}
		for i := 1; i < n; i++ {
			said = append(said, `{"role":"assistant","content":"recorded"}`, fmt.Sprintf(`{"role":"user","content":"q%d"}`, i))
		}
		return json.RawMessage("[" + strings.Join(said, ",") + "]")
	}
	requests := []Request{{Messages: turn(1)}, {Messages: turn(2)}, {Messages: turn(3)}}
	target := NewTarget(nil, Chat, "", Options{}, requests)
	target.Follow(1, 0, &record.Record{Text: "a0"})
	target.Follow(2, 1, &record.Record{Text: "a1"})
	want := `[{"content":"q0","role":"user"},{"content":"a0","role":"assistant"},{"content":"q1","role":"user"},{"content":"a1","role":"assistant"},{"content":"q2","role":"user"}]`
	if got := string(requests[2].Messages); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What depends on a request that failed is still sent, as it was recorded.
func TestChainAfterFailure(t *testing.T) {
	requests := []Request{{Messages: json.RawMessage(`[{"role":"assistant","content":"recorded"}]`)}}
	target := NewTarget(nil, Chat, "", Options{}, requests)
	target.Follow(0, 0, &record.Record{Kind: record.Timeout, Text: "half"})
	target.Follow(7, 0, &record.Record{})
	if !strings.Contains(string(requests[0].Messages), "recorded") {
		t.Errorf("changed to %s", requests[0].Messages)
	}
}

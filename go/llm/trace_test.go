package llm_test

import "testing"

// TestTrace: the trace holds each batch, in order, and tells its size.
func TestTrace(t *testing.T) {
	l := tiny(t, nil)
	tokens(t, l, workload(1)) // before the trace
	l.StartTrace()
	req := greedy([]int32{1, 2, 3, 4, 5}, 4)
	events := eventsOf(t, l, req)
	waitIdle(t, l)
	batches := l.StopTrace()
	if len(batches) != 4 || !batches[0].Prefill || batches[0].Tokens != 5 || batches[0].Sampled != 1 {
		t.Fatalf("a prompt of 5 tokens and 3 steps gave %+v", batches)
	}
	for i, b := range batches {
		if b.Requests != 1 || b.End.Before(b.Start) || i > 0 && (b.Prefill || b.Tokens != 1 || b.Start.Before(batches[i-1].Start)) {
			t.Errorf("batch %d: %+v", i, b)
		}
	}
	if begun := events[0].Begun; begun.IsZero() || begun.After(batches[0].End) {
		t.Errorf("the request began at %v, its first batch ended at %v", begun, batches[0].End)
	}
	tokens(t, l, workload(1)) // after it
	if rest := l.StopTrace(); len(rest) != 0 {
		t.Errorf("%d batches after the end", len(rest))
	}
}

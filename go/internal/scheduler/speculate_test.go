package scheduler

import "testing"

// TestChoose: the costs are those of kernels that read the weights once for 6 rows.
func TestChoose(t *testing.T) {
	costs := []float64{1, 1.05, 1.1, 1.15, 1.2, 1.3, 2, 2.1, 2.2, 2.2, 2.3, 2.4}
	for _, test := range []struct {
		name     string
		requests int
		right    float64 // of each
		most     int
		want     int
	}{
		{"nothing is known", 1, firstRight, 8, 3},
		{"a text that is copied: as many as one pass over the weights takes", 1, 0.9, 8, 5},
		{"one that is copied without a flaw: two passes", 1, 0.99, 11, 11},
		{"fewer are allowed", 1, 0.9, 3, 3},
		{"a chat", 1, 0.15, 8, 0},
		{"four copies: what is left of the pass", 4, 0.8, 8, 2},
		{"six copies: no room in the pass", 6, 0.7, 8, 0},
		{"more requests than costs are known for", 12, 0.9, 8, 0},
	} {
		var drafts []draft
		for depth, worth := 0, test.right; depth < test.most; depth, worth = depth+1, worth*test.right {
			for range test.requests {
				drafts = append(drafts, draft{worth: worth})
			}
		}
		c := Speculation{MaxDraft: test.most, StepCost: costs}
		if got := c.choose(test.requests, drafts); got != test.want {
			t.Errorf("%s: %d guesses, want %d", test.name, got, test.want)
		}
	}
}

// TestTook: costs follow the steps that are run, slowly.
func TestTook(t *testing.T) {
	s := Scheduler{cfg: Config{Speculation: Speculation{StepCost: []float64{1, 4}}}}
	s.Took(1, 100)
	s.Took(3, 5) // one that is not asked for
	if got := s.cfg.Speculation.StepCost[0]; got != 1+costStep {
		t.Errorf("one slow step makes the cost %v, want %v", got, 1+costStep)
	}
	for range 100 {
		s.Took(2, 2)
	}
	if got := s.cfg.Speculation.StepCost[1]; got < 2 || got > 2.01 {
		t.Errorf("after many steps of cost 2 it is %v", got)
	}
}

package server

import (
	"strings"
	"testing"
)

// TestJumpForwardIsShown: there is a counter of the tokens that were forced.
func TestJumpForwardIsShown(t *testing.T) {
	check(t, "metrics", samples(newServer(t, newFake(), Config{})), map[string]string{"minisgl:jump_forward_tokens_total": "9"})
}

// TestSpeculationIsShown: 4 steps of which 6 guesses of 8 were right gave 10 tokens.
func TestSpeculationIsShown(t *testing.T) {
	e := newFake()
	e.algorithm = "ngram"
	s := newServer(t, e, Config{})
	check(t, "metrics", samples(s), map[string]string{"sglang:spec_accept_length": "2.5", "sglang:spec_accept_rate": "0.75"})
	info := do(s, "GET", "/server_info", "").Body.String()
	for _, want := range []string{`"speculative_algorithm":"ngram","speculative_num_draft_tokens":5`, `"avg_spec_accept_length":2.5`} {
		if !strings.Contains(info, want) {
			t.Errorf("no %s in %s", want, info)
		}
	}
}

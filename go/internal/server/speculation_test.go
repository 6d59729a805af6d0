package server

import (
	"strings"
	"testing"
)

// TestJumpForwardIsShown: there is a counter of the tokens that were forced.
func TestJumpForwardIsShown(t *testing.T) {
	s := newServer(t, newFake(), Config{})
	check(t, "metrics", samples(s), map[string]string{"minisgl:jump_forward_tokens_total": "9"})
	if info := do(s, "GET", "/server_info", "").Body.String(); !strings.Contains(info, `"jump_forward_tokens":9`) {
		t.Errorf("no jump_forward_tokens in %s", info)
	}
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

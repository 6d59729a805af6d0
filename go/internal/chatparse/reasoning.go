package chatparse

import (
	"bytes"
	"strings"
)

const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"
)

// ThinkingEnd is the text that ends reasoning early, with ThinkingGap, which
// models write between the mark and the answer.
const (
	ThinkingEnd = "\n" + thinkEnd + ThinkingGap
	ThinkingGap = "\n\n"
)

// reasoning finds what is between <think> and </think> at the beginning of an
// answer, and may have no <think> if the prompt has it.
type reasoning struct {
	buf   []byte // text that isn't settled
	state thought
	whole bool
	held  []byte // of the reasoning, if whole
}

// thought is where a text is.
type thought uint8

const (
	mayThink    thought = iota // before <think>, if it is there
	beginsOpen                 // within reasoning, which may begin with <think>
	beginsInner                // behind <think>
	within                     // behind the white space that follows
	beginsOuter                // behind </think>
	answers
)

func newReasoning(o Options) *reasoning {
	r := &reasoning{whole: o.Whole}
	prompt := strings.TrimRight(o.Prompt, space)
	switch {
	case strings.HasSuffix(prompt, thinkEnd): // as with enable_thinking=false
		r.state = answers
	case strings.HasSuffix(prompt, thinkBegin), o.Reasoning == deepseekR1:
		r.state = beginsOpen
	}
	return r
}

func (r *reasoning) thinks() bool { return r.state >= beginsOpen && r.state <= within }

// feed takes text and returns the parts that became certain.
func (r *reasoning) feed(text string, ended bool) (thought, rest string) {
	r.buf = append(r.buf, text...)
	var inner []byte
	if r.state <= beginsOpen {
		r.begin(ended)
	}
	if r.state == beginsInner && r.trim() {
		r.state = within
	}
	if r.state == within {
		n, next := split(r.buf, thinkEnd, ended)
		inner = append(inner, r.buf[:n]...)
		r.buf = r.buf[max(n, next):]
		if next > 0 {
			r.state = beginsOuter
		}
	}
	if r.state == beginsOuter && r.trim() {
		r.state = answers
	}
	if r.state == answers {
		rest, r.buf = string(r.buf), r.buf[:0]
	}
	return string(r.inOnePiece(inner, ended)), rest
}

// begin looks for <think>.
func (r *reasoning) begin(ended bool) {
	text := bytes.TrimLeft(r.buf, space)
	near := len(r.buf)-len(text) <= maxSpace
	switch {
	case near && bytes.HasPrefix(text, []byte(thinkBegin)):
		r.buf, r.state = text[len(thinkBegin):], beginsInner
	case near && !ended && strings.HasPrefix(thinkBegin, string(text)):
		// There may be more of it.
	case r.state == beginsOpen:
		r.state = beginsInner
	default:
		r.state = answers
	}
}

// trim drops white space at the beginning and reports whether something follows.
func (r *reasoning) trim() bool {
	r.buf = bytes.TrimLeft(r.buf, space)
	return len(r.buf) > 0
}

// inOnePiece keeps reasoning back until it has ended, if it is to.
func (r *reasoning) inOnePiece(text []byte, ended bool) []byte {
	if !r.whole {
		return text
	}
	r.held = append(r.held, text...)
	if r.thinks() && !ended {
		return nil
	}
	text, r.held = r.held, nil
	return text
}

package llm

import "github.com/minisgl/minisgl/go/internal/core"

// Limits of Request.Stop.
const (
	maxStops      = 16
	maxStopLength = 4096 // bytes
)

// stopMatcher finds stop strings in a text that comes in pieces. Text that may
// be the start of a stop string is held back. The stop string that is complete
// first counts, of several the longest, so that the result doesn't depend on how
// the text is cut. Its time is proportional to the text's length times the number
// of stop strings.
type stopMatcher struct {
	patterns []pattern
	held     string
}

// pattern is a stop string with the table of Knuth, Morris and Pratt.
type pattern struct {
	text    string
	border  []int // of each prefix: the longest proper prefix of it that it ends in
	matched int   // bytes of text that the input ends in
}

// newStopMatcher returns an InvalidError when stops can't be used.
func newStopMatcher(stops []string) (*stopMatcher, error) {
	if len(stops) > maxStops {
		return nil, core.Invalid("stop", "has %d strings, but may have at most %d", len(stops), maxStops)
	}
	m := &stopMatcher{patterns: make([]pattern, len(stops))}
	for i, stop := range stops {
		if stop == "" || len(stop) > maxStopLength {
			return nil, core.Invalid("stop", "string %d has %d bytes, but must have 1 to %d", i, len(stop), maxStopLength)
		}
		m.patterns[i] = newPattern(stop)
	}
	return m, nil
}

func newPattern(text string) pattern {
	p := pattern{text: text, border: make([]int, len(text)+1)}
	for i := 1; i < len(text); i++ {
		p.step(text[i])
		p.border[i+1] = p.matched
	}
	p.matched = 0
	return p
}

// step takes one byte of input and reports whether it completes the string.
func (p *pattern) step(c byte) bool {
	for p.matched > 0 && (p.matched == len(p.text) || p.text[p.matched] != c) {
		p.matched = p.border[p.matched]
	}
	if p.text[p.matched] == c {
		p.matched++
	}
	return p.matched == len(p.text)
}

// push adds text and returns what is certain to come before a stop string, and
// the stop string if one is complete; nothing may follow then.
func (m *stopMatcher) push(text string) (out, stop string) {
	begin := len(m.held)
	m.held += text
	for i := range len(text) {
		for k := range m.patterns {
			p := &m.patterns[k]
			if p.step(text[i]) && len(p.text) > len(stop) {
				stop = p.text
			}
		}
		if stop != "" {
			out, m.held = m.held[:begin+i+1-len(stop)], ""
			return out, stop
		}
	}
	keep := 0
	for _, p := range m.patterns {
		keep = max(keep, p.matched)
	}
	out, m.held = m.held[:len(m.held)-keep], m.held[len(m.held)-keep:]
	return out, ""
}

// release returns the text that was held back, when none is to come.
func (m *stopMatcher) release() string {
	out := m.held
	m.held = ""
	return out
}

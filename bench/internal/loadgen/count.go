package loadgen

import (
	"time"

	"github.com/minisgl/minisgl/bench/internal/record"
)

// countTokens finds how many tokens each chunk brought, by the best evidence
// there is, and fills Tokens, FirstChunk and Source of rec.
func countTokens(pieces []piece, rec *record.Record) {
	c := &counter{rec: rec}
	texts, total := survey(pieces)
	switch {
	case continuous(pieces, texts):
		rec.Source = record.ContinuousUsage
		c.byUsage(pieces)
	case total > 0:
		rec.Source = record.FinalUsage
		c.spread(bearers(pieces, texts), total)
	case texts > 0:
		rec.Source = record.Chunks
		c.spread(bearers(pieces, texts), texts)
	}
}

// survey counts the chunks with text and returns the last usage, or -1.
func survey(pieces []piece) (texts, total int) {
	total = -1
	for _, p := range pieces {
		if p.text {
			texts++
		}
		if p.usage >= 0 {
			total = p.usage
		}
	}
	return texts, total
}

// continuous reports whether usage comes with each chunk that can bear a token:
// on all chunks with text or, where text stays empty, on more than the last one.
func continuous(pieces []piece, texts int) bool {
	withUsage, textsWithUsage, total := 0, 0, 0
	for _, p := range pieces {
		if !p.choice || p.usage < 0 {
			continue
		}
		withUsage++
		total = p.usage
		if p.text {
			textsWithUsage++
		}
	}
	if total == 0 {
		return false
	}
	if texts > 0 {
		return textsWithUsage == texts
	}
	return withUsage > 1
}

// bearers returns the chunks that bear tokens when usage does not tell: those
// with text; else those of the answer that do not just announce the role.
func bearers(pieces []piece, texts int) []piece {
	var out, answer []piece
	for _, p := range pieces {
		if p.choice {
			answer = append(answer, p)
		}
		if p.text || texts == 0 && p.choice && !p.role {
			out = append(out, p)
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(answer) > 0:
		return answer
	}
	return pieces
}

// counter puts tokens on the time line.
type counter struct {
	rec  *record.Record
	last time.Duration // when the last chunk that bore a token arrived
}

// add puts n tokens of a chunk that arrived at the given time. A chunk without
// tokens leaves its gap to the next one.
func (c *counter) add(n int, at time.Duration) {
	if n <= 0 {
		return
	}
	if len(c.rec.Tokens) == 0 {
		c.rec.FirstChunk, c.last = n, at
	}
	gap := at - c.last
	for j := 1; j <= n; j++ {
		c.rec.Tokens = append(c.rec.Tokens, c.last+gap*time.Duration(j)/time.Duration(n))
	}
	c.last = at
}

// byUsage takes the growth of usage as the tokens of a chunk. Growth that only
// the closing usage chunk shows belongs to the last chunk of the answer. Text
// before the first count is a token that the count will catch up with.
func (c *counter) byUsage(pieces []piece) {
	var lastChoice time.Duration
	for _, p := range pieces {
		if p.choice {
			lastChoice = p.at
		}
		n := p.usage - len(c.rec.Tokens)
		if p.text && len(c.rec.Tokens) == 0 {
			n = max(n, 1)
		}
		c.add(n, lastChoice)
	}
}

// spread shares total tokens evenly over chunks; the first gets at least one.
func (c *counter) spread(chunks []piece, total int) {
	m, given := len(chunks), 0
	for i, p := range chunks {
		upTo := ((i+1)*total + m - 1) / m
		c.add(upTo-given, p.at)
		given = upTo
	}
}

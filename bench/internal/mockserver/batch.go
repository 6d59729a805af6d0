package mockserver

import (
	"cmp"
	"slices"
	"time"
)

// batchChunk is a token of one answer of a batch.
type batchChunk struct {
	due    time.Duration
	index  int
	tokens int // of this answer so far
	finish string
	prompt int // tokens of its prompt
}

// streamBatch answers several prompts in one stream: the token of each of them,
// then the next of each. Chunks hold one token.
func (a *answer) streamBatch(prompts []int, want int) {
	a.w.Header().Set("Content-Type", "text/event-stream")
	for _, c := range a.batchChunks(prompts, want) {
		if !a.wait(c.due) || !a.fault(c.tokens-1) {
			return
		}
		a.prompt = c.prompt
		chunk := a.chunk(c.tokens, &part{text: a.words(c.tokens-1, 1, c.tokens-1), finish: c.finish})
		if a.api == generateAPI {
			chunk["index"] = c.index
		} else if choices, ok := chunk["choices"].([]fields); ok {
			choices[0]["index"] = c.index
		}
		a.send(chunk)
	}
	if !a.cfg.NoDone {
		a.write("[DONE]")
	}
}

func (a *answer) batchChunks(prompts []int, want int) []batchChunk {
	var chunks []batchChunk
	for i, prompt := range prompts {
		total, finish := want, "length"
		if stop := a.cfg.EOSAfter + i; a.cfg.EOSAfter > 0 && stop < want {
			total, finish = stop, "stop"
		}
		for n := range total {
			c := batchChunk{index: i, tokens: n + 1, prompt: prompt}
			c.due = a.cfg.TTFT + time.Duration(i)*a.cfg.BatchSpread + time.Duration(n)*a.cfg.ITL
			if n == total-1 {
				c.finish = finish
			}
			chunks = append(chunks, c)
		}
	}
	slices.SortStableFunc(chunks, func(x, y batchChunk) int { return cmp.Compare(x.due, y.due) })
	return chunks
}

package server

import (
	"slices"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// textAnswer builds what a completion is answered with.
type textAnswer struct {
	tally
	req     *openai.CompletionRequest
	names   tokenNames
	jobs    []job
	echo    []string // what comes before the texts of each prompt; nil if nothing does
	offsets []int    // of each choice: characters of the tokens that logprobs has told of
	id      string
	created int64
}

func (a *textAnswer) prefix(i int) string {
	if a.echo == nil {
		return ""
	}
	return a.echo[i/a.n]
}

// logprobs returns the next tokens of a choice: of its prompt, if that is echoed,
// then of the text. It is nil if they were not asked for.
func (a *textAnswer) logprobs(i int, prompt, text []llm.TokenLogprob) *openai.TextLogprobs {
	p := a.req.Sampling
	if !p.Logprobs {
		return nil
	}
	if a.offsets == nil {
		a.offsets = make([]int, len(a.choices))
	}
	t := &textColumns{names: a.names, top: p.TopLogprobs > 0, offset: a.offsets[i]}
	if p.PromptLogprobs != nil && t.offset == 0 {
		t.addFirst(a.jobs[i].req.TokenIDs[0])
	}
	for _, token := range slices.Concat(prompt, text) {
		t.add(token)
	}
	a.offsets[i] = t.offset
	return &t.out
}

func (a *textAnswer) head() openai.TextResponse {
	return openai.TextResponse{ID: a.id, Object: openai.ObjectText, Created: a.created, Model: a.req.Model}
}

func (a *textAnswer) document() any {
	doc := a.head()
	doc.Usage = a.usage()
	for i := range a.choices {
		c := &a.choices[i]
		reason := string(c.last.Finish)
		doc.Choices = append(doc.Choices, openai.TextChoice{Index: i, Text: a.prefix(i) + c.text.String(), Logprobs: a.logprobs(i, c.prompt, c.logprobs), FinishReason: &reason})
	}
	return doc
}

// events follow the rules of chatAnswer.events.
func (a *textAnswer) events(i int, ev llm.Event) []any {
	text := ev.Text
	if a.choices[i].events == 1 {
		text = a.prefix(i) + text
	}
	var chunks []any
	if ev.HasToken {
		chunks = append(chunks, a.chunk(i, text, a.logprobs(i, ev.PromptLogprob, tokenOf(ev)), nil))
		text = ""
	}
	if ev.Finish == "" {
		return chunks
	}
	reason := string(ev.Finish)
	chunks = append(chunks, a.chunk(i, text, nil, &reason))
	if a.req.IncludeUsage && a.left == 0 {
		total := a.head()
		total.Choices = []openai.TextChoice{}
		chunks = append(chunks, openai.TextUsageChunk{TextResponse: total, Usage: a.usage()})
	}
	return chunks
}

func (a *textAnswer) chunk(i int, text string, logprobs *openai.TextLogprobs, reason *string) any {
	chunk := a.head()
	chunk.Choices = []openai.TextChoice{{Index: i, Text: text, Logprobs: logprobs, FinishReason: reason}}
	switch {
	case a.req.ContinuousUsage:
		chunk.Usage = a.usage()
	case a.req.IncludeUsage:
		return openai.TextUsageChunk{TextResponse: chunk}
	}
	return chunk
}

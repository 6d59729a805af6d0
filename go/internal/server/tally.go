package server

import (
	"strings"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// answer builds what a request is answered with, of the events of its members.
type answer interface {
	add(i int, ev llm.Event)          // takes each event, before events
	events(i int, ev llm.Event) []any // its part of an answer that streams
	document() any                    // the answer in one piece
	usage() *openai.Usage             // so far
	finish() string                   // why the first choice has ended
}

// tally sums up the choices of an answer: n for each prompt.
type tally struct {
	n       int
	choices []choice
	left    int // choices that have not ended
}

type choice struct {
	text   strings.Builder
	ids    []int32
	last   llm.Event
	events int

	logprobs []llm.TokenLogprob // of ids, if they were asked for
	prompt   []llm.TokenLogprob // of the prompt's tokens but the first ones
}

func newTally(n, choices int) tally {
	return tally{n: n, choices: make([]choice, choices), left: choices}
}

func (t *tally) add(i int, ev llm.Event) {
	c := &t.choices[i]
	c.events++
	c.last = ev
	c.text.WriteString(ev.Text)
	if ev.HasToken {
		c.ids = append(c.ids, ev.Token)
	}
	if ev.Logprob != nil {
		c.logprobs = append(c.logprobs, *ev.Logprob)
	}
	c.prompt = append(c.prompt, ev.PromptLogprob...)
	if ev.Finish != "" {
		t.left--
	}
}

func (t *tally) finish() string { return string(t.choices[0].last.Finish) }

// usage is that of the whole request; a prompt counts once for all its choices.
func (t *tally) usage() *openai.Usage {
	u := &openai.Usage{PromptTokensDetails: &openai.PromptDetails{}}
	for i := range t.choices {
		of := t.choices[i].last.Usage
		u.CompletionTokens += of.CompletionTokens
		if i%t.n == 0 {
			u.PromptTokens += of.PromptTokens
			u.PromptTokensDetails.CachedTokens += of.CachedTokens
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

package server

import (
	"unicode/utf8"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/openai"
)

// tokenNames returns what a token stands for.
type tokenNames func(id int32) []byte

// tokenOf returns the log-probability of an event's token, if it has one.
func tokenOf(ev llm.Event) []llm.TokenLogprob {
	if ev.Logprob == nil {
		return nil
	}
	return []llm.TokenLogprob{*ev.Logprob}
}

func (names tokenNames) chat(list []llm.TokenLogprob) *openai.ChatLogprobs {
	out := &openai.ChatLogprobs{Content: make([]openai.ChatLogprob, len(list))}
	for i, t := range list {
		out.Content[i] = openai.ChatLogprob{
			TokenText: openai.TextOfToken(names(t.Token)), Logprob: openai.NewLogprob(t.Logprob), Top: []openai.ChatTopLP{},
		}
		for _, top := range t.Top {
			out.Content[i].Top = append(out.Content[i].Top, openai.ChatTopLP{
				TokenText: openai.TextOfToken(names(top.Token)), Logprob: openai.NewLogprob(top.Logprob),
			})
		}
	}
	return out
}

// textColumns builds a completion's log-probabilities.
type textColumns struct {
	names  tokenNames
	top    bool // alternatives were asked for
	offset int  // characters before the next token
	out    openai.TextLogprobs
}

// addFirst adds a prompt's first token, which has no log-probability.
func (c *textColumns) addFirst(id int32) { c.append(id, nil, nil) }

func (c *textColumns) add(t llm.TokenLogprob) {
	own := openai.NewLogprob(t.Logprob)
	var top map[string]openai.Logprob
	if c.top {
		top = map[string]openai.Logprob{openai.NameOfToken(c.names(t.Token)): own}
		for _, other := range t.Top {
			top[openai.NameOfToken(c.names(other.Token))] = openai.NewLogprob(other.Logprob)
		}
	}
	c.append(t.Token, &own, top)
}

func (c *textColumns) append(id int32, own *openai.Logprob, top map[string]openai.Logprob) {
	token := c.names(id)
	c.out.Tokens = append(c.out.Tokens, openai.NameOfToken(token))
	c.out.TokenLogprobs = append(c.out.TokenLogprobs, own)
	c.out.TextOffset = append(c.out.TextOffset, c.offset)
	if c.top {
		c.out.TopLogprobs = append(c.out.TopLogprobs, top)
	}
	for _, b := range token { // a character counts with its first byte
		if utf8.RuneStart(b) {
			c.offset++
		}
	}
}

// nativeLogprobs are sglang's triples.
type nativeLogprobs struct {
	names tokenNames
	texts bool // write the tokens' texts
}

func (n nativeLogprobs) triple(id int32, logprob any) openai.NativeLogprob {
	if !n.texts {
		return openai.NativeLogprob{logprob, id, nil}
	}
	return openai.NativeLogprob{logprob, id, openai.TextOfToken(n.names(id)).Token}
}

func (n nativeLogprobs) tokens(list []llm.TokenLogprob) []openai.NativeLogprob {
	out := make([]openai.NativeLogprob, len(list))
	for i, t := range list {
		out[i] = n.triple(t.Token, openai.NewLogprob(t.Logprob))
	}
	return out
}

func (n nativeLogprobs) tops(list []llm.TokenLogprob) [][]openai.NativeLogprob {
	out := make([][]openai.NativeLogprob, len(list))
	for i, t := range list {
		for _, top := range t.Top {
			out[i] = append(out[i], n.triple(top.Token, openai.NewLogprob(top.Logprob)))
		}
	}
	return out
}

// fill writes the log-probabilities of a choice as sglang does: those of the
// prompt from logprob_start_len on, of which the first has none; without one, the
// prompt's last token stands alone.
func (n nativeLogprobs) fill(meta *openai.GenerateMeta, req llm.Request, c *choice) {
	p := req.Params
	if !p.Logprobs {
		return
	}
	first := len(req.TokenIDs) - 1
	if p.PromptLogprobs != nil {
		first = *p.PromptLogprobs
	}
	meta.InputLogprobs = append([]openai.NativeLogprob{n.triple(req.TokenIDs[first], nil)}, n.tokens(c.prompt)...)
	meta.OutputLogprobs = n.tokens(c.logprobs)
	if p.TopLogprobs > 0 {
		meta.InputTop = append([][]openai.NativeLogprob{nil}, n.tops(c.prompt)...)
		meta.OutputTop = n.tops(c.logprobs)
	}
}

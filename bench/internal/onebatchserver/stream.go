package onebatchserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/minisgl/minisgl/go/openai"
)

// sighting is how many tokens a reply had at a time since the batch was sent.
type sighting struct {
	at    time.Duration
	count int
}

// reply is the answer to one prompt of a batch.
type reply struct {
	seen           []sighting
	finish         string
	prompt, cached int
}

func (r *reply) total() int { return r.seen[len(r.seen)-1].count }

// at returns the tokens at a time, as if those of a chunk had come evenly since
// the chunk before. The first chunk comes as one.
func (r *reply) at(t time.Duration) float64 {
	i, exact := slices.BinarySearchFunc(r.seen, t, func(s sighting, t time.Duration) int { return int(s.at - t) })
	switch {
	case exact:
		for i+1 < len(r.seen) && r.seen[i+1].at == t {
			i++
		}
		return float64(r.seen[i].count)
	case i == 0:
		return 0
	case i == len(r.seen):
		return float64(r.total())
	}
	before, after := r.seen[i-1], r.seen[i]
	return float64(before.count) + float64(after.count-before.count)*float64(t-before.at)/float64(after.at-before.at)
}

// batch are the answers to all prompts that were sent together.
type batch []reply

// chunk is an event of sglang's /generate or of OpenAI's completions.
type chunk struct {
	Error json.RawMessage `json:"error"`
	Index int             `json:"index"`
	Meta  *struct {
		Completion *int `json:"completion_tokens"`
		Prompt     int  `json:"prompt_tokens"`
		Cached     int  `json:"cached_tokens"`
		Finish     *struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"finish_reason"`
	} `json:"meta_info"`
	Choices []struct {
		Index  int     `json:"index"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
}

// maxCount bounds the tokens that a server may claim for one answer.
const maxCount = 1 << 20

// add takes an event that came at a time since the batch was sent.
func (b batch) add(ev openai.Event, at time.Duration) error {
	var c chunk
	if err := json.Unmarshal([]byte(ev.Data), &c); err != nil {
		return fmt.Errorf("the server sent what is not the JSON that is wanted: %.200s", ev.Data)
	}
	switch {
	case ev.Name == "error" || len(c.Error) > 0 && string(c.Error) != "null":
		return fmt.Errorf("the server reported an error in the stream: %.200s", ev.Data)
	case c.Meta != nil:
		return b.addNative(&c, at)
	}
	for _, choice := range c.Choices {
		r, err := b.reply(choice.Index)
		if err != nil {
			return err
		}
		r.seen = append(r.seen, sighting{at, len(r.seen) + 1})
		if choice.Finish != nil {
			r.finish = *choice.Finish
		}
	}
	return nil
}

func (b batch) reply(index int) (*reply, error) {
	if index < 0 || index >= len(b) {
		return nil, fmt.Errorf("the server answered prompt %d of %d", index, len(b))
	}
	return &b[index], nil
}

func (b batch) addNative(c *chunk, at time.Duration) error {
	r, err := b.reply(c.Index)
	if err != nil {
		return err
	}
	if n := c.Meta.Completion; n == nil || *n < 0 || *n > maxCount {
		return fmt.Errorf("a chunk of prompt %d has no usable meta_info.completion_tokens", c.Index)
	} else if *n > 0 {
		r.seen = append(r.seen, sighting{at, *n})
	}
	r.prompt, r.cached = max(c.Meta.Prompt, 0), max(c.Meta.Cached, 0)
	if c.Meta.Finish != nil {
		r.finish = c.Meta.Finish.Type
		if r.finish != "length" && r.finish != "stop" {
			return fmt.Errorf("the answer to prompt %d ended with %q: %.200s", c.Index, r.finish, c.Meta.Finish.Message)
		}
	}
	return nil
}

// check returns an error unless every prompt has an answer that ended as it should.
func (b batch) check(ignoreEOS bool) error {
	for i := range b {
		switch {
		case len(b[i].seen) == 0:
			return fmt.Errorf("no token came for prompt %d of %d", i, len(b))
		case b[i].finish == "":
			return fmt.Errorf("the answer to prompt %d has no finish_reason: the stream was cut", i)
		case b[i].finish == "stop" && ignoreEOS:
			return fmt.Errorf("the answer to prompt %d stopped after %d tokens although ignore_eos was asked for", i, b[i].total())
		}
	}
	return nil
}

func (b batch) total() int {
	sum := 0
	for i := range b {
		sum += b[i].total()
	}
	return sum
}

// started is when the last of the answers had its first token.
func (b batch) started() time.Duration {
	var last time.Duration
	for i := range b {
		last = max(last, b[i].seen[0].at)
	}
	return last
}

// ended returns when the first and the last answer had their last token.
func (b batch) ended() (first, last time.Duration) {
	for i := range b {
		at := b[i].seen[len(b[i].seen)-1].at
		if i == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	return first, last
}

func (b batch) at(t time.Duration) float64 {
	sum := 0.0
	for i := range b {
		sum += b[i].at(t)
	}
	return sum
}

// rate returns the tokens per second from one time to another: those that came
// after the first, up to the second. nil if there is no such time.
func (b batch) rate(from, to time.Duration) *float64 {
	tokens := b.at(to) - b.at(from)
	if to <= from || tokens <= 0 {
		return nil
	}
	rate := tokens / (to - from).Seconds()
	return &rate
}

// cacheHits returns the share of the prompts that the server found in its cache,
// by the counts of its answers; nil if there are none.
func (b batch) cacheHits() *float64 {
	prompt, cached := 0, 0
	for i := range b {
		prompt += b[i].prompt
		cached += b[i].cached
	}
	if prompt == 0 {
		return nil
	}
	share := float64(cached) / float64(prompt)
	return &share
}

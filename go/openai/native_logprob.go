package openai

import (
	"encoding/json"
	"fmt"

	"github.com/minisgl/minisgl/go/internal/core"
)

// nativeLogprobs is what a body of /generate says of one prompt's
// log-probabilities.
type nativeLogprobs struct {
	wanted bool
	top    int
	start  int // of the prompt's tokens; -1: none
}

func (l nativeLogprobs) apply(p *core.SamplingParams) {
	if !l.wanted {
		return
	}
	p.Logprobs, p.TopLogprobs = true, l.top
	if l.start >= 0 {
		p.PromptLogprobs = &l.start
	}
}

// parseNativeLogprobs reads return_logprob, top_logprobs_num and
// logprob_start_len: each one value for all prompts, or a list of one for each.
func parseNativeLogprobs(f *fields, prompts int) []nativeLogprobs {
	list := make([]nativeLogprobs, prompts)
	f.each("return_logprob", prompts, func(i int, o *fields, member string) { list[i].wanted = o.flag(member) })
	f.each("top_logprobs_num", prompts, func(i int, o *fields, member string) {
		if list[i].top = o.integer(member, 0); list[i].top < 0 || list[i].top > core.MaxTopLogprobs {
			o.fail(Invalid(o.name(member), "must be from 0 to %d, got %d", core.MaxTopLogprobs, list[i].top))
		}
	})
	f.each("logprob_start_len", prompts, func(i int, o *fields, member string) {
		if list[i].start = o.integer(member, -1); list[i].start < -1 {
			o.fail(Invalid(o.name(member), "must be -1 (only the output's) or more, got %d", list[i].start))
		}
	})
	return list
}

// each reads a member that holds one value for all prompts, or a list of one for
// each.
func (f *fields) each(member string, prompts int, read func(i int, o *fields, member string)) {
	raw, ok := f.raw(member)
	if !ok || raw[0] != '[' {
		for i := range prompts {
			read(i, f, member)
		}
		return
	}
	list := f.list(member)
	if len(list) != prompts {
		f.fail(Invalid(f.name(member), "has %d elements for %d prompts", len(list), prompts))
		return
	}
	for i, element := range list {
		name := fmt.Sprintf("%s[%d]", member, i)
		o := &fields{path: f.path, members: map[string]json.RawMessage{name: element}}
		if read(i, o, name); o.err != nil {
			f.fail(o.err)
		}
	}
}

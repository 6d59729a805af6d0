package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/minisgl/minisgl/go/internal/core"
)

// Limits of a request.
const (
	MaxChoices = 128  // of one prompt
	MaxPrompts = 2048 // of one request
	MaxStops   = 16
)

const (
	maxStopLength = 4096    // bytes
	maxTokenIDs   = 1 << 20 // of one prompt
)

// Generation is what the requests to /v1/chat/completions and /v1/completions
// have in common.
type Generation struct {
	Model        string // as the caller wrote it; "" if absent
	Sampling     core.SamplingParams
	N            int // choices for each prompt, from 1
	Stop         []string
	StopTokenIDs []int32

	Stream          bool
	IncludeUsage    bool // a last chunk with the usage
	ContinuousUsage bool // the running usage on each chunk
}

// Prompt is a text, or token ids when they are not nil.
type Prompt struct {
	Text     string
	TokenIDs []int32
}

func parseGeneration(f *fields, absent core.SamplingParams) Generation {
	g := Generation{
		Model:        f.text("model"),
		Sampling:     parseSampling(f, absent),
		N:            parseN(f),
		Stop:         parseStop(f),
		StopTokenIDs: f.tokenIDs("stop_token_ids"),
		Stream:       f.flag("stream"),
	}
	options := f.object("stream_options")
	g.IncludeUsage = options.flag("include_usage")
	g.ContinuousUsage = options.flag("continuous_usage_stats")
	f.failAs(options)
	return g
}

func parseSampling(f *fields, absent core.SamplingParams) core.SamplingParams {
	p := core.SamplingParams{
		Temperature: f.number("temperature", absent.Temperature),
		TopK:        f.integer("top_k", absent.TopK),
		TopP:        f.number("top_p", absent.TopP),
		MinP:        f.number("min_p", absent.MinP),
		MaxTokens:   f.count("max_tokens", absent.MaxTokens),
		IgnoreEOS:   f.flag("ignore_eos"),
		Seed:        f.seed("seed"),

		PresencePenalty:   f.number("presence_penalty", absent.PresencePenalty),
		FrequencyPenalty:  f.number("frequency_penalty", absent.FrequencyPenalty),
		RepetitionPenalty: f.number("repetition_penalty", absent.RepetitionPenalty),
		LogitBias:         f.biases("logit_bias"),
		Grammar:           parseGrammar(f),
		MinTokens:         f.integer("min_tokens", 0),
	}
	p.MaxTokens = f.count("max_completion_tokens", p.MaxTokens)
	checkSampling(f, p, nil)
	return p
}

// checkSampling reports a field that is out of range, under its name in names if
// it has one there.
func checkSampling(f *fields, p core.SamplingParams, names map[string]string) {
	var invalid *core.InvalidError
	if err := p.Validate(); f.err == nil && errors.As(err, &invalid) {
		f.fail(Invalid(f.name(cmp.Or(names[invalid.Field], invalid.Field)), "%s", invalid.Message))
	}
}

// biases reads an object of biases by token id, written as a string; nil if it is
// absent.
func (f *fields) biases(member string) []core.TokenBias {
	o := f.object(member)
	var list []core.TokenBias
	for name := range o.members {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 {
			o.fail(Invalid(f.name(member), "has the key %q, which is no token id", brief([]byte(name))))
		}
		list = append(list, core.TokenBias{Token: int32(id), Bias: o.number(name, 0)})
	}
	f.failAs(o)
	slices.SortFunc(list, func(a, b core.TokenBias) int { return int(a.Token) - int(b.Token) })
	return list
}

func parseN(f *fields) int {
	n := f.count("n", 1)
	if n > MaxChoices {
		f.fail(Invalid(f.name("n"), "must be at most %d, got %d", MaxChoices, n))
	}
	return n
}

// parseStop reads a string or a list of strings.
func parseStop(f *fields) []string {
	raw, ok := f.raw("stop")
	if !ok {
		return nil
	}
	list := []json.RawMessage{raw}
	if raw[0] == '[' {
		list = f.list("stop")
	}
	if len(list) > MaxStops {
		f.fail(Invalid(f.name("stop"), "has %d strings, but may have at most %d", len(list), MaxStops))
		return nil
	}
	var stops []string
	for i, element := range list {
		path := f.name("stop")
		if raw[0] == '[' {
			path = fmt.Sprintf("%s[%d]", path, i)
		}
		text, ok := textOf(element)
		switch {
		case !ok:
			f.fail(Invalid(path, "must be a string, got %s", kindOf(element)))
		case text == "" || len(text) > maxStopLength:
			f.fail(Invalid(path, "has %d bytes, but a stop string must have 1 to %d", len(text), maxStopLength))
		}
		stops = append(stops, text)
	}
	return stops
}

// tokenIDs returns a list of token ids; nil if it is absent.
func (f *fields) tokenIDs(member string) []int32 {
	raw, ok := f.raw(member)
	if !ok {
		return nil
	}
	ids, err := parseTokenIDs(f.name(member), raw)
	if err != nil {
		f.fail(err)
	}
	return ids
}

func parseTokenIDs(path string, raw json.RawMessage) ([]int32, error) {
	list, err := splitList(path, raw, maxTokenIDs)
	if err != nil {
		return nil, err
	}
	ids := make([]int32, len(list))
	for i, element := range list {
		x, err := strconv.ParseFloat(string(element), 64)
		if err != nil || !isNumber(element) || x < 0 || x > maxInteger || x != math.Trunc(x) {
			return nil, Invalid(fmt.Sprintf("%s[%d]", path, i), "must be a token id, got %s", kindOf(element))
		}
		ids[i] = int32(x)
	}
	return ids, nil
}

// prompts reads a string, a list of strings, a list of token ids, or a list of
// such lists; many tells whether it was a list of prompts.
func (f *fields) prompts(member string) (prompts []Prompt, many bool) {
	raw, ok := f.raw(member)
	if !ok {
		f.fail(Invalid(f.name(member), "is missing"))
		return nil, false
	}
	if text, ok := textOf(raw); ok {
		return []Prompt{{Text: text}}, false
	}
	list, err := splitList(f.name(member), raw, maxTokenIDs)
	switch {
	case err != nil:
		f.mistyped(member, "a string, or a list of strings or of token ids", raw)
		return nil, false
	case len(list) == 0:
		f.fail(Invalid(f.name(member), "is empty; give at least one token or prompt"))
		return nil, false
	case isNumber(list[0]):
		return []Prompt{{TokenIDs: f.tokenIDs(member)}}, false
	case len(list) > MaxPrompts:
		f.fail(Invalid(f.name(member), "has %d prompts, but may have at most %d", len(list), MaxPrompts))
		return nil, false
	}
	for i, element := range list {
		prompt, err := parsePrompt(fmt.Sprintf("%s[%d]", f.name(member), i), element)
		if err != nil {
			f.fail(err)
			return nil, false
		}
		prompts = append(prompts, prompt)
	}
	return prompts, true
}

func parsePrompt(path string, raw json.RawMessage) (Prompt, error) {
	if text, ok := textOf(raw); ok {
		return Prompt{Text: text}, nil
	}
	if raw[0] != '[' {
		return Prompt{}, Invalid(path, "must be a string or a list of token ids, got %s", kindOf(raw))
	}
	ids, err := parseTokenIDs(path, raw)
	if err == nil && len(ids) == 0 {
		err = Invalid(path, "is empty; give at least one token")
	}
	return Prompt{TokenIDs: ids}, err
}

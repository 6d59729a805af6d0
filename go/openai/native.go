package openai

import (
	"encoding/json"
	"fmt"

	"github.com/minisgl/minisgl/go/internal/core"
)

// GenerateRequest is a valid request to sglang's /generate, or to mini-sglang's
// endpoint of the same name, which has a "prompt" instead of a "text".
type GenerateRequest struct {
	Prompts []GeneratePrompt // at least one
	Many    bool             // they came as a list, or n is above 1: so does the answer
	Stream  bool
	Plain   bool // mini-sglang's form: the answer is a stream of bare text

	LogprobTexts bool // write each token's text beside its log-probability
}

// GeneratePrompt is one prompt and what is to become of it.
type GeneratePrompt struct {
	Prompt
	RID          string // the caller's name for it; "" if absent
	Sampling     core.SamplingParams
	N            int // answers
	Stop         []string
	StopTokenIDs []int32
}

const (
	nativeTokens = 128 // sglang's default of max_new_tokens
	maxRID       = 256 // bytes
)

// unsupportedNative and unsupportedNativeSampling list the fields of /generate,
// and of its sampling_params, that can't be honoured.
var (
	unsupportedNative = []field{
		{"input_embeds", nil},
		{"image_data", []string{"[]"}},
		{"audio_data", []string{"[]"}},
		{"video_data", []string{"[]"}},
		{"token_ids_logprob", []string{"[]"}},
		{"return_hidden_states", []string{"false"}},
		{"return_routed_experts", []string{"false"}},
		{"lora_path", nil},
		{"session_params", nil},
		{"custom_logit_processor", nil},
	}
	unsupportedNativeSampling = []field{
		{"skip_special_tokens", []string{"true"}},
		{"no_stop_trim", []string{"false"}},
		{"stop_regex", []string{"[]"}},
	}
)

// ParseGenerate reads and checks the body of a request to /generate, by the
// rules of ParseChat. The key "prompt" tells mini-sglang's form from sglang's.
func ParseGenerate(data []byte, absent core.SamplingParams) (*GenerateRequest, error) {
	f, err := parseBody(data)
	if err != nil {
		return nil, err
	}
	req := &GenerateRequest{}
	_, isText := f.raw("text")
	_, isIDs := f.raw("input_ids")
	_, isPlain := f.raw("prompt")
	switch {
	case isText && isIDs:
		f.fail(Invalid("input_ids", "can't be given together with text"))
	case isText || isIDs:
		parseNative(f, req, absent)
	case isPlain:
		parsePlain(f, req)
	default:
		f.fail(Invalid("text", "is missing; give text or input_ids"))
	}
	if f.err != nil {
		return nil, f.err
	}
	return req, nil
}

// parsePlain reads mini-sglang's form, which is always greedy and always streams.
func parsePlain(f *fields, req *GenerateRequest) {
	sampling := core.DefaultSampling()
	if _, ok := f.raw("max_tokens"); !ok {
		f.fail(Invalid("max_tokens", "is missing"))
	}
	sampling.MaxTokens = f.count("max_tokens", 1)
	sampling.IgnoreEOS = f.flag("ignore_eos")
	req.Plain, req.Stream = true, true
	req.Prompts = []GeneratePrompt{{Prompt: Prompt{Text: f.text("prompt")}, Sampling: sampling, N: 1}}
}

func parseNative(f *fields, req *GenerateRequest, absent core.SamplingParams) {
	member := "text"
	if _, ok := f.raw("input_ids"); ok {
		member = "input_ids"
	}
	prompts, many := f.prompts(member)
	for _, p := range prompts {
		switch {
		case member == "text" && p.TokenIDs != nil:
			f.fail(Invalid(member, "must be a string or a list of strings; token ids go into input_ids"))
		case member == "input_ids" && p.TokenIDs == nil:
			f.fail(Invalid(member, "must be a list of token ids, or a list of such lists; strings go into text"))
		}
	}
	req.Many = many
	req.Stream = f.flag("stream")
	req.LogprobTexts = f.flag("return_text_in_logprobs")
	refuse(f, unsupportedNative)
	params := parseNativeParams(f, len(prompts), absent)
	rids := parseRIDs(f, len(prompts))
	logprobs := parseNativeLogprobs(f, len(prompts))
	if f.err != nil {
		return
	}
	choices := 0
	for i, p := range prompts {
		prompt := params[i]
		prompt.Prompt, prompt.RID = p, rids[i]
		logprobs[i].apply(&prompt.Sampling)
		req.Prompts = append(req.Prompts, prompt)
		choices += prompt.N
	}
	req.Many = many || choices > 1
	checkChoices(f, member, choices)
}

// parseNativeParams reads sampling_params: an object for all prompts, or a list
// of one for each.
func parseNativeParams(f *fields, prompts int, absent core.SamplingParams) []GeneratePrompt {
	const member = "sampling_params"
	params := make([]GeneratePrompt, prompts)
	raw, ok := f.raw(member)
	if ok && raw[0] == '[' {
		list := f.list(member)
		if len(list) != prompts {
			f.fail(Invalid(member, "has %d elements for %d prompts", len(list), prompts))
			return nil
		}
		for i, element := range list {
			o, err := parseObject(fmt.Sprintf("%s[%d]", member, i), element)
			if err != nil {
				f.fail(err)
				return nil
			}
			params[i] = parseNativeSampling(f, o, absent)
		}
		return params
	}
	all := parseNativeSampling(f, f.object(member), absent)
	for i := range params {
		params[i] = all
	}
	return params
}

func parseNativeSampling(f, o *fields, absent core.SamplingParams) GeneratePrompt {
	p := GeneratePrompt{
		Sampling: core.SamplingParams{
			Temperature: o.number("temperature", absent.Temperature),
			TopK:        o.integer("top_k", absent.TopK),
			TopP:        o.number("top_p", absent.TopP),
			MinP:        o.number("min_p", absent.MinP),
			MaxTokens:   o.count("max_new_tokens", nativeTokens),
			IgnoreEOS:   o.flag("ignore_eos"),
			Seed:        o.seed("sampling_seed"),

			PresencePenalty:   o.number("presence_penalty", absent.PresencePenalty),
			FrequencyPenalty:  o.number("frequency_penalty", absent.FrequencyPenalty),
			RepetitionPenalty: o.number("repetition_penalty", absent.RepetitionPenalty),
			LogitBias:         o.biases("logit_bias"),
			Grammar:           parseGrammar(o),
			MinTokens:         o.integer("min_new_tokens", 0),
		},
		N:            parseN(o),
		Stop:         parseStop(o),
		StopTokenIDs: o.tokenIDs("stop_token_ids"),
	}
	checkSampling(o, p.Sampling, map[string]string{"min_tokens": "min_new_tokens"})
	refuse(o, unsupportedNativeSampling)
	f.failAs(o)
	return p
}

// parseRIDs reads rid: one for all prompts, or a list of one for each.
func parseRIDs(f *fields, prompts int) []string {
	rids := make([]string, prompts)
	raw, ok := f.raw("rid")
	if !ok {
		return rids
	}
	list := []json.RawMessage{raw}
	if raw[0] == '[' {
		if list = f.list("rid"); len(list) != prompts {
			f.fail(Invalid("rid", "has %d elements for %d prompts", len(list), prompts))
			return rids
		}
	}
	for i := range rids {
		rid, ok := textOf(list[min(i, len(list)-1)])
		if !ok || len(rid) > maxRID {
			f.fail(Invalid("rid", "must be a string of at most %d bytes, or a list of them", maxRID))
		}
		rids[i] = rid
	}
	return rids
}

// AbortRequest is a request to /abort_request.
type AbortRequest struct {
	RID string // the requests of this name
	All bool   // all that run
}

// ParseAbort reads the body of a request to /abort_request.
func ParseAbort(data []byte) (*AbortRequest, error) {
	f, err := parseBody(data)
	if err != nil {
		return nil, err
	}
	req := &AbortRequest{RID: f.text("rid"), All: f.flag("abort_all")}
	if f.err == nil && req.RID == "" && !req.All {
		f.fail(Invalid("rid", "is missing"))
	}
	if f.err != nil {
		return nil, f.err
	}
	return req, nil
}

// TokenizeRequest is a request to /tokenize.
type TokenizeRequest struct {
	Texts      []string // at least one
	Many       bool     // they came as a list: so do the tokens
	AddSpecial bool
}

// ParseTokenize reads the body of a request to /tokenize.
func ParseTokenize(data []byte) (*TokenizeRequest, error) {
	f, err := parseBody(data)
	if err != nil {
		return nil, err
	}
	req := &TokenizeRequest{AddSpecial: f.flagOr("add_special_tokens", true)}
	prompts, many := f.prompts("prompt")
	req.Many = many
	for _, p := range prompts {
		if p.TokenIDs != nil {
			f.fail(Invalid("prompt", "must be a string or a list of strings"))
		}
		req.Texts = append(req.Texts, p.Text)
	}
	if f.err != nil {
		return nil, f.err
	}
	return req, nil
}

// DetokenizeRequest is a request to /detokenize.
type DetokenizeRequest struct {
	TokenIDs    [][]int32 // at least one list
	Many        bool      // they came as a list of lists: so do the texts
	SkipSpecial bool
}

// ParseDetokenize reads the body of a request to /detokenize.
func ParseDetokenize(data []byte) (*DetokenizeRequest, error) {
	f, err := parseBody(data)
	if err != nil {
		return nil, err
	}
	req := &DetokenizeRequest{SkipSpecial: f.flagOr("skip_special_tokens", true)}
	prompts, many := f.prompts("tokens")
	req.Many = many
	for _, p := range prompts {
		if p.TokenIDs == nil {
			f.fail(Invalid("tokens", "must be a list of token ids, or a list of such lists"))
		}
		req.TokenIDs = append(req.TokenIDs, p.TokenIDs)
	}
	if f.err != nil {
		return nil, f.err
	}
	return req, nil
}

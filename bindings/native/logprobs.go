package native

import "github.com/minisgl/minisgl/go/llm"

// tokenLogprob is a token's log-probability beside the likeliest tokens in its
// place.
type tokenLogprob struct {
	TokenID int32        `json:"token_id"`
	Logprob float32      `json:"logprob"`
	Top     []topLogprob `json:"top_logprobs"`
}

type topLogprob struct {
	TokenID int32   `json:"token_id"`
	Logprob float32 `json:"logprob"`
}

// leastLogprob stands for minus infinity, which JSON has not.
const leastLogprob = -9999

func newLogprob(t llm.TokenLogprob) tokenLogprob {
	out := tokenLogprob{TokenID: t.Token, Logprob: max(t.Logprob, leastLogprob), Top: []topLogprob{}}
	for _, top := range t.Top {
		out.Top = append(out.Top, topLogprob{TokenID: top.Token, Logprob: max(top.Logprob, leastLogprob)})
	}
	return out
}

// newLogprobs is nil, null in JSON, unless they were asked for.
func newLogprobs(list []llm.TokenLogprob, wanted bool) []tokenLogprob {
	if !wanted {
		return nil
	}
	out := make([]tokenLogprob, len(list))
	for i, t := range list {
		out[i] = newLogprob(t)
	}
	return out
}

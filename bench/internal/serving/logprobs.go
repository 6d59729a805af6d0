package serving

import (
	"encoding/json"
	"maps"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
)

// logprobOptions ask for what costs a server time beside its tokens.
type logprobOptions struct {
	on, experts bool
	top, start  int
	ids         []int
}

func (l *logprobOptions) define(f *pflag.FlagSet) {
	f.BoolVar(&l.on, "return-logprob", false, "ask for log probabilities")
	f.IntVar(&l.top, "top-logprobs-num", 0, "with it: of so many of the likeliest tokens")
	f.IntVar(&l.start, "logprob-start-len", -1, "with it, sglang: of the prompt from this token on; -1: of the answer only")
	f.IntSliceVar(&l.ids, "token-ids-logprob", nil, "with it, sglang: of these ids too; several may follow")
	f.BoolVar(&l.experts, "return-routed-experts", false, "ask sglang which experts each token went to")
}

// fields are what a request of the API says of it.
func (l *logprobOptions) fields(api loadgen.API) map[string]any {
	out := map[string]any{}
	switch api {
	case loadgen.Generate:
		if l.on {
			out["return_logprob"], out["logprob_start_len"] = true, l.start
		}
		if l.on && l.top > 0 {
			out["top_logprobs_num"] = l.top
		}
		if l.on && len(l.ids) > 0 {
			out["token_ids_logprob"] = l.ids
		}
		if l.experts {
			out["return_routed_experts"] = true
		}
	case loadgen.Completions:
		if l.on {
			out["logprobs"] = l.top
		}
	case loadgen.Chat, loadgen.ChatSocket:
		if l.on {
			out["logprobs"], out["top_logprobs"] = true, l.top
		}
	}
	return out
}

// addTo puts the fields under those of the user, which win.
func (l *logprobOptions) addTo(extra map[string]json.RawMessage, api loadgen.API) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for key, value := range l.fields(api) {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		out[key] = data
	}
	maps.Copy(out, extra)
	return out, nil
}

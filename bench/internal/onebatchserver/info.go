package onebatchserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// serverInfo is what is used of sglang's /server_info.
type serverInfo struct {
	Tokenizer string `json:"tokenizer_path"`
	Prefill   []struct {
		Tokenizer string `json:"tokenizer_path"`
	} `json:"prefill"`
	Internal []struct {
		Running int `json:"effective_max_running_requests_per_dp"`
		DP      int `json:"dp_size"`
		AttnDP  int `json:"attn_dp_size"`
		Memory  struct {
			Capacity float64 `json:"token_capacity"`
		} `json:"memory_usage"`
		LastGen *float64 `json:"last_gen_throughput"`
		Accept  *float64 `json:"avg_spec_accept_length"`
	} `json:"internal_states"`
}

func (b *bench) info(ctx context.Context) (*serverInfo, error) {
	data, err := b.ask(ctx, http.MethodGet, "/server_info", nil, askWait)
	if err != nil {
		return nil, fmt.Errorf("the server tells nothing of itself: %w", err)
	}
	info := &serverInfo{}
	if err := json.Unmarshal(data, info); err != nil {
		return nil, fmt.Errorf("GET /server_info: %w", err)
	}
	return info, nil
}

func (i *serverInfo) tokenizer() string {
	if i.Tokenizer == "" && len(i.Prefill) > 0 {
		return i.Prefill[0].Tokenizer
	}
	return i.Tokenizer
}

// limits reads what runs at once. A router in front of servers does not tell.
func (i *serverInfo) limits() limits {
	l := noLimits()
	if len(i.Internal) == 0 || i.Internal[0].Running <= 0 {
		return l
	}
	first := i.Internal[0]
	l.perGroup, l.groups = first.Running, max(first.DP, 1)*max(first.AttnDP, 1)
	l.running = float64(l.perGroup * l.groups)
	sum := 0.0
	for _, state := range i.Internal {
		if state.Memory.Capacity <= 0 {
			return l
		}
		sum += state.Memory.Capacity
	}
	l.tokens = sum
	return l
}

// speeds returns the tokens per step of speculative decoding and the throughput
// that the server last had, or -1.
func (i *serverInfo) speeds() (accept, lastGen float64) {
	accept, lastGen = -1, -1
	for _, state := range i.Internal {
		if state.Accept != nil {
			accept = *state.Accept
		}
		if state.LastGen != nil {
			lastGen = *state.LastGen
		}
	}
	return accept, lastGen
}

package native

import "github.com/minisgl/minisgl/go/llm"

// output is a finished request; times are in seconds. PromptTokenIDs is null
// where the caller gave them.
type output struct {
	Text             string  `json:"text"`
	TokenIDs         []int32 `json:"token_ids"`
	PromptTokenIDs   []int32 `json:"prompt_token_ids"`
	FinishReason     string  `json:"finish_reason"`
	PromptTokens     int     `json:"prompt_tokens"`
	CachedTokens     int     `json:"cached_tokens"`
	CompletionTokens int     `json:"completion_tokens"`
	TTFT             float64 `json:"ttft"`
	E2E              float64 `json:"e2e"`

	Logprobs       []tokenLogprob `json:"logprobs"`        // of TokenIDs; null unless asked for
	PromptLogprobs []tokenLogprob `json:"prompt_logprobs"` // of the prompt's tokens from the second on; null likewise
}

// newOutputs describes what the requests of a list, as resolve made them, gave.
func newOutputs(outs []llm.Output, reqs []llm.Request, list []request) []output {
	told := make([]output, len(outs))
	for i, o := range outs {
		told[i] = output{
			Text:             o.Text,
			TokenIDs:         append([]int32{}, o.TokenIDs...), // never null
			FinishReason:     string(o.Finish),
			PromptTokens:     o.Usage.PromptTokens,
			CachedTokens:     o.Usage.CachedTokens,
			CompletionTokens: o.Usage.CompletionTokens,
			TTFT:             o.TTFT.Seconds(),
			E2E:              o.E2E.Seconds(),

			Logprobs:       newLogprobs(o.Logprobs, reqs[i].Params.Logprobs),
			PromptLogprobs: newLogprobs(o.PromptLogprobs, reqs[i].Params.PromptLogprobs != nil),
		}
		if list[i].TokenIDs == nil {
			told[i].PromptTokenIDs = reqs[i].TokenIDs
		}
	}
	return told
}

// info describes a model; EOSTokenID is null where the model names none.
type info struct {
	Model           string  `json:"model"`
	Path            string  `json:"path"`
	Architecture    string  `json:"architecture"`
	DType           string  `json:"dtype"`
	Device          string  `json:"device"`
	Threads         int     `json:"num_threads"`
	VocabSize       int     `json:"vocab_size"`
	MaxSeqLen       int     `json:"max_seq_len"`
	NumPages        int     `json:"num_pages"`
	PageSize        int     `json:"page_size"`
	LoadSeconds     float64 `json:"load_seconds"`
	EOSTokenID      *int32  `json:"eos_token_id"`
	BOSTokenID      *int32  `json:"bos_token_id"`
	HasChatTemplate bool    `json:"has_chat_template"`
}

func newInfo(e *llm.LLM) info {
	i, tok := e.Info(), e.Tokenizer()
	out := info{
		Model:           i.Model,
		Path:            i.Path,
		Architecture:    i.Architecture,
		DType:           i.DType,
		Device:          i.Device,
		Threads:         i.Threads,
		VocabSize:       i.VocabSize,
		MaxSeqLen:       i.MaxSeqLen,
		NumPages:        i.NumPages,
		PageSize:        i.PageSize,
		LoadSeconds:     i.LoadTime.Seconds(),
		HasChatTemplate: tok.HasChatTemplate(),
	}
	if id, ok := tok.EOS(); ok {
		out.EOSTokenID = &id
	}
	if id, ok := tok.BOS(); ok {
		out.BOSTokenID = &id
	}
	return out
}

// stats counts since the engine's start.
type stats struct {
	Waiting          int     `json:"waiting"`
	Running          int     `json:"running"`
	FreePages        int     `json:"free_pages"`
	TotalPages       int     `json:"total_pages"`
	CachedPages      int     `json:"cached_pages"`
	EvictablePages   int     `json:"evictable_pages"`
	Preemptions      int64   `json:"preemptions"`
	PromptTokens     int64   `json:"prompt_tokens"`
	CachedTokens     int64   `json:"cached_tokens"`
	CompletionTokens int64   `json:"completion_tokens"`
	FinishedReqs     int64   `json:"finished_reqs"`
	AbortedReqs      int64   `json:"aborted_reqs"`
	PrefillBatches   int64   `json:"prefill_batches"`
	DecodeSteps      int64   `json:"decode_steps"`
	ForwardSeconds   float64 `json:"forward_seconds"`
	DraftTokens      int64   `json:"draft_tokens"`
	AcceptedTokens   int64   `json:"accepted_tokens"`
	JumpedTokens     int64   `json:"jumped_tokens"`
	AcceptLength     float64 `json:"accept_length"`
}

func newStats(s llm.Stats) stats {
	return stats{
		Waiting:          s.Waiting,
		Running:          s.Running,
		FreePages:        s.FreePages,
		TotalPages:       s.TotalPages,
		CachedPages:      s.CachedPages,
		EvictablePages:   s.EvictablePages,
		Preemptions:      s.Preemptions,
		PromptTokens:     s.PromptTokens,
		CachedTokens:     s.CachedTokens,
		CompletionTokens: s.CompletionTokens,
		FinishedReqs:     s.FinishedReqs,
		AbortedReqs:      s.AbortedReqs,
		PrefillBatches:   s.PrefillBatches,
		DecodeSteps:      s.DecodeSteps,
		ForwardSeconds:   s.Forward.Seconds(),
		DraftTokens:      s.DraftTokens,
		AcceptedTokens:   s.AcceptedTokens,
		JumpedTokens:     s.JumpedTokens,
		AcceptLength:     s.AcceptLength(),
	}
}

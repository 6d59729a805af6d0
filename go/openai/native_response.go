package openai

// GenerateResponse answers a request to /generate, and is an event of one that
// streams: its text is all of the text so far.
type GenerateResponse struct {
	Text      string       `json:"text"`
	OutputIDs []int32      `json:"output_ids,omitempty"` // not in streams
	Meta      GenerateMeta `json:"meta_info"`
	Index     *int         `json:"index,omitempty"` // which answer of several an event is about
}

// GenerateMeta tells how far a request is.
type GenerateMeta struct {
	ID               string        `json:"id"`
	FinishReason     *NativeFinish `json:"finish_reason"` // nil while it runs
	PromptTokens     int           `json:"prompt_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	CachedTokens     int           `json:"cached_tokens"`
	Latency          *float64      `json:"e2e_latency,omitempty"` // seconds, at the end

	// Left out unless they were asked for. The first of the prompt's tokens has no
	// log-probability.
	InputLogprobs  []NativeLogprob   `json:"input_token_logprobs,omitempty"`
	OutputLogprobs []NativeLogprob   `json:"output_token_logprobs,omitempty"`
	InputTop       [][]NativeLogprob `json:"input_top_logprobs,omitempty"`
	OutputTop      [][]NativeLogprob `json:"output_top_logprobs,omitempty"`
}

// NativeLogprob is [log-probability or null, token id, text or null].
type NativeLogprob [3]any

// NativeFinish says why a request ended: Type is stop, length or abort.
type NativeFinish struct {
	Type    string `json:"type"`
	Matched string `json:"matched,omitempty"` // the stop string
	Length  int    `json:"length,omitempty"`  // the tokens that were the limit
	Message string `json:"message,omitempty"` // of an abort
}

// ModelInfo answers /model_info.
type ModelInfo struct {
	ModelPath         string   `json:"model_path"`
	TokenizerPath     string   `json:"tokenizer_path"`
	IsGeneration      bool     `json:"is_generation"`
	PreferredSampling any      `json:"preferred_sampling_params"`
	WeightVersion     string   `json:"weight_version"`
	Architectures     []string `json:"architectures"`
}

// ServerInfo answers /server_info.
type ServerInfo struct {
	ModelPath          string  `json:"model_path"`
	TokenizerPath      string  `json:"tokenizer_path"`
	ServedModelName    string  `json:"served_model_name"`
	DType              string  `json:"dtype"`
	Device             string  `json:"device"`
	ContextLength      int     `json:"context_length"`
	PageSize           int     `json:"page_size"`
	MaxRunningRequests int     `json:"max_running_requests"`
	MaxTotalNumTokens  int     `json:"max_total_num_tokens"`
	MaxReqInputLen     int     `json:"max_req_input_len"`
	Status             string  `json:"status"`
	Version            string  `json:"version"`
	ToolCallParser     *string `json:"tool_call_parser"` // nil: none
	ReasoningParser    *string `json:"reasoning_parser"`

	SpeculativeAlgorithm   *string `json:"speculative_algorithm"`
	SpeculativeDraftTokens *int    `json:"speculative_num_draft_tokens"`

	InternalStates []InternalState `json:"internal_states"`
}

// InternalState is that of one scheduler.
type InternalState struct {
	MaxRunning        int         `json:"effective_max_running_requests_per_dp"`
	MemoryUsage       MemoryUsage `json:"memory_usage"`
	LastGenThroughput float64     `json:"last_gen_throughput"` // generated tokens per second
	Running           int         `json:"num_running_reqs"`
	Waiting           int         `json:"num_queue_reqs"`
	AcceptLength      *float64    `json:"avg_spec_accept_length,omitempty"` // tokens of a decoding step; absent without speculation
	JumpedTokens      int64       `json:"jump_forward_tokens"`              // that grammars forced, and nothing sampled
}

// MemoryUsage tells how many tokens fit in the KV cache.
type MemoryUsage struct {
	TokenCapacity int `json:"token_capacity"`
}

// TokenizeResponse answers /tokenize: token ids and their number, or a list of
// each.
type TokenizeResponse struct {
	Tokens      any `json:"tokens"`
	Count       any `json:"count"`
	MaxModelLen int `json:"max_model_len"`
}

// DetokenizeResponse answers /detokenize: a text or a list of texts.
type DetokenizeResponse struct {
	Text any `json:"text"`
}

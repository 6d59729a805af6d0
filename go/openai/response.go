package openai

// Values of the Object fields.
const (
	ObjectChat      = "chat.completion"
	ObjectChatChunk = "chat.completion.chunk"
	ObjectText      = "text_completion"
	ObjectModel     = "model"
	ObjectList      = "list"
)

// ChatResponse answers a chat request that does not stream.
type ChatResponse struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"` // Unix time, seconds
	Model   string       `json:"model"`
	Choices []ChatChoice `json:"choices"`
	Usage   *Usage       `json:"usage"`
}

// ChatChoice is one answer.
type ChatChoice struct {
	Index        int           `json:"index"`
	Message      ChatMessage   `json:"message"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

// ChatMessage is the assistant's message.
type ChatMessage struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`                     // nil if there are but calls
	ReasoningContent string     `json:"reasoning_content,omitempty"` // not OpenAI's; other servers of open models have it
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	Refusal          *string    `json:"refusal"`
}

// ToolCall is a call of a function that the model makes.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"` // "function"
	Function FunctionCall `json:"function"`
}

// FunctionCall is the function's name and its arguments, the text of a JSON
// object as the model wrote it, which need not be valid.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ChatChunk is one event of a chat that streams. Usage is left out when it is
// nil; see ChatUsageChunk.
type ChatChunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"` // Unix time, seconds
	Model   string        `json:"model"`
	Choices []ChunkChoice `json:"choices"`
	Usage   *Usage        `json:"usage,omitempty"`
}

// ChatUsageChunk is a ChatChunk that says "usage":null when it has none, as
// every chunk of a stream must that was asked for its usage.
type ChatUsageChunk struct {
	ChatChunk
	Usage *Usage `json:"usage"`
}

// ChunkChoice is a choice's part of a chunk. FinishReason is nil until the
// choice's last chunk.
type ChunkChoice struct {
	Index        int           `json:"index"`
	Delta        Delta         `json:"delta"`
	Logprobs     *ChatLogprobs `json:"logprobs,omitempty"` // of the chunk's token, if asked for
	FinishReason *string       `json:"finish_reason"`
}

// Delta is what a chunk adds to the message. Content may be "" (the token's text
// isn't certain yet), and is nil in a chunk that stands for no token.
type Delta struct {
	Role             string          `json:"role,omitempty"`
	Content          *string         `json:"content,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCallDelta `json:"tool_calls,omitempty"`
}

// ToolCallDelta begins the call of its index, with all but the arguments, or adds
// to its arguments.
type ToolCallDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function FunctionDelta `json:"function"`
}

// FunctionDelta is FunctionCall in parts.
type FunctionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// TextResponse answers a completion request that does not stream.
type TextResponse struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"` // Unix time, seconds
	Model   string       `json:"model"`
	Choices []TextChoice `json:"choices"`
	Usage   *Usage       `json:"usage,omitempty"` // nil in a stream, but when it was asked for
}

// TextUsageChunk is a TextResponse that says "usage":null when it has none, as
// every chunk of a stream must that was asked for its usage.
type TextUsageChunk struct {
	TextResponse
	Usage *Usage `json:"usage"`
}

// TextChoice is one text, or, in a stream, a part of it.
type TextChoice struct {
	Index        int           `json:"index"`
	Text         string        `json:"text"`
	Logprobs     *TextLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"` // nil until the choice's last chunk
}

// Usage counts a request's tokens.
type Usage struct {
	PromptTokens        int            `json:"prompt_tokens"`
	CompletionTokens    int            `json:"completion_tokens"`
	TotalTokens         int            `json:"total_tokens"`
	PromptTokensDetails *PromptDetails `json:"prompt_tokens_details,omitempty"`

	CompletionTokensDetails *CompletionDetails `json:"completion_tokens_details,omitempty"`
}

// PromptDetails splits Usage.PromptTokens up.
type PromptDetails struct {
	CachedTokens int `json:"cached_tokens"` // found in the prefix cache
}

// CompletionDetails splits Usage.CompletionTokens up.
type CompletionDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// ModelList answers /v1/models.
type ModelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Model describes a served model. Root and MaxModelLen are not OpenAI's;
// other servers of open models have them.
type Model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"` // Unix time, seconds
	OwnedBy     string `json:"owned_by"`
	Root        string `json:"root,omitempty"`
	MaxModelLen int    `json:"max_model_len,omitempty"` // tokens, prompt and answer together
}

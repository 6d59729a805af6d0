package loadgen

import (
	"encoding/json"
	"strings"
)

// chunk is what one event of any API says.
type chunk struct {
	err                        json.RawMessage
	choice, role, tool         bool
	text                       string
	whole                      bool // text is all of the answer so far
	finish                     string
	prompt, completion, cached *int
}

func parse(api API, data []byte) (chunk, error) {
	switch api {
	case Generate:
		return parseGenerate(data)
	case TensorRT:
		return parseTensorRT(data)
	}
	return parseOpenAI(data)
}

type openAIMessage struct {
	Content          string            `json:"content"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        string            `json:"reasoning"`
	Refusal          string            `json:"refusal"`
	ToolCalls        []json.RawMessage `json:"tool_calls"`
	Role             string            `json:"role"`
}

func (m openAIMessage) text() string {
	return m.ReasoningContent + m.Reasoning + m.Content + m.Refusal
}

// parseOpenAI reads chunks and documents of chats and completions. It is looser
// than the server's own types on purpose: other servers differ in details.
func parseOpenAI(data []byte) (chunk, error) {
	var v struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Delta        openAIMessage `json:"delta"`
			Message      openAIMessage `json:"message"`
			Text         string        `json:"text"`
			FinishReason string        `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			PromptTokens     *int `json:"prompt_tokens"`
			CompletionTokens *int `json:"completion_tokens"`
			Details          *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return chunk{}, err
	}
	c := chunk{err: v.Error}
	var text strings.Builder
	for _, choice := range v.Choices {
		c.choice = true
		c.role = c.role || choice.Delta.Role != ""
		c.tool = c.tool || len(choice.Delta.ToolCalls)+len(choice.Message.ToolCalls) > 0
		text.WriteString(choice.Delta.text() + choice.Message.text() + choice.Text)
		if choice.FinishReason != "" {
			c.finish = choice.FinishReason
		}
	}
	c.text = text.String()
	if u := v.Usage; u != nil {
		c.prompt, c.completion = u.PromptTokens, u.CompletionTokens
		if u.Details != nil {
			c.cached = u.Details.Cached
		}
	}
	return c, nil
}

// parseGenerate reads sglang's own chunks: text so far, and counts in meta_info.
func parseGenerate(data []byte) (chunk, error) {
	var v struct {
		Error json.RawMessage `json:"error"`
		Text  *string         `json:"text"`
		Meta  *struct {
			PromptTokens     *int            `json:"prompt_tokens"`
			CompletionTokens *int            `json:"completion_tokens"`
			CachedTokens     *int            `json:"cached_tokens"`
			FinishReason     json.RawMessage `json:"finish_reason"`
		} `json:"meta_info"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return chunk{}, err
	}
	c := chunk{err: v.Error, choice: v.Text != nil || v.Meta != nil, whole: true}
	if v.Text != nil {
		c.text = *v.Text
	}
	if v.Meta != nil {
		c.prompt, c.completion, c.cached = v.Meta.PromptTokens, v.Meta.CompletionTokens, v.Meta.CachedTokens
		c.finish = finishReason(v.Meta.FinishReason)
	}
	return c, nil
}

// finishReason reads a string, or an object with a type.
func finishReason(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name
	}
	var object struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &object) == nil {
		return object.Type
	}
	return ""
}

func parseTensorRT(data []byte) (chunk, error) {
	var v struct {
		Error json.RawMessage `json:"error"`
		Text  *string         `json:"text_output"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return chunk{}, err
	}
	c := chunk{err: v.Error, choice: v.Text != nil}
	if v.Text != nil {
		c.text = *v.Text
	}
	return c, nil
}

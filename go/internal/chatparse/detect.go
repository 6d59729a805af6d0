package chatparse

import (
	"regexp"
	"strings"
)

// Auto stands for the format that a model's chat template shows.
const Auto = "auto"

// qwenCall tells calls that are objects from those of other models that have the
// same mark.
var qwenCall = regexp.MustCompile(`<tool_call>\s*\{`)

// DetectTools returns the format of the calls in a conversation as a chat template
// has rendered it; "" if none is known.
func DetectTools(rendered string) string {
	switch {
	case qwenCall.MatchString(rendered):
		return "qwen"
	case strings.Contains(rendered, mistralCalls):
		return "mistral"
	case strings.Contains(rendered, llamaTag), strings.Contains(rendered, `"parameters":`):
		return "llama3"
	}
	return ""
}

// DetectReasoning returns the format of reasoning; "" if none is known. It takes a
// conversation that ends with an answer that has some, and one that ends where an
// answer begins.
func DetectReasoning(answered, open string) string {
	switch {
	case strings.HasSuffix(strings.TrimRight(open, space), thinkBegin):
		return deepseekR1
	case strings.Contains(answered, thinkBegin):
		return "qwen3"
	}
	return ""
}

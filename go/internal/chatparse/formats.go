package chatparse

import (
	"fmt"
	"slices"
	"strings"
)

// ToolFormats are the names of the forms in which models write calls:
//
//   - qwen and hermes: <tool_call>{"name": …, "arguments": {…}}</tool_call>, one after
//     the other (Qwen 2.5 and 3, Nous Hermes 2 and 3);
//   - llama3: <|python_tag|>{"name": …, "parameters": {…}}, several with ";"
//     or nothing between them; the tag may be missing at the beginning of the answer
//     (Llama 3.1 to 3.3);
//   - mistral: [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or
//     [TOOL_CALLS]name[ARGS]{…}, one after the other, of newer models.
//
// Each takes "arguments" and "parameters" for the same thing.
var ToolFormats = []string{"qwen", "hermes", "llama3", "mistral"}

// JSONCalls is the form that a grammar makes a model write: a list of calls and
// nothing else.
const JSONCalls = "json"

const deepseekR1 = "deepseek-r1"

// ReasoningFormats are the names of the forms in which models reason: between
// <think> and </think>. The answers of qwen3 begin with the one, or with neither;
// those of deepseek-r1 are within reasoning from the beginning.
var ReasoningFormats = []string{"qwen3", deepseekR1}

// CheckToolFormat returns an error that lists the names if name, which may be
// empty or Auto, is none of them.
func CheckToolFormat(name string) error { return check(name, ToolFormats) }

// CheckReasoningFormat is CheckToolFormat for ReasoningFormats.
func CheckReasoningFormat(name string) error { return check(name, ReasoningFormats) }

func check(name string, names []string) error {
	if name == "" || name == Auto || slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("must be %s, %s, got %q", Auto, strings.Join(names, ", "), name)
}

// SpecialTokens are the special tokens whose text a format's parser needs.
func SpecialTokens(tools string) []string {
	switch tools {
	case "llama3":
		return []string{llamaTag}
	case "mistral":
		return []string{mistralCalls, mistralID, mistralArgs}
	}
	return nil
}

const (
	llamaTag     = "<|python_tag|>"
	mistralCalls = "[TOOL_CALLS]"
	mistralID    = "[CALL_ID]"
	mistralArgs  = "[ARGS]"
)

// format describes the calls of a kind of models.
type format struct {
	begin string            // the mark before calls; "": they are all of the answer
	end   string            // the mark behind each; "": there is none
	bare  bool              // at the beginning of the answer the mark may be missing
	open  func(*tools) bool // the state behind begin
	next  func(*tools) bool // the state behind a call
}

func formatOf(name string) format {
	switch name {
	case "llama3":
		return format{begin: llamaTag, bare: true, open: (*tools).object, next: (*tools).nextLlama}
	case "mistral":
		return format{begin: mistralCalls, open: (*tools).mistral, next: (*tools).nextInList}
	case JSONCalls:
		return format{open: (*tools).list, next: (*tools).nextInList}
	}
	return format{begin: "<tool_call>", end: "</tool_call>", open: (*tools).object, next: (*tools).nextHermes}
}

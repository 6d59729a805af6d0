package loadgen

import (
	"encoding/json"

	"github.com/minisgl/minisgl/bench/internal/record"
)

// Follow makes the conversation of request index go on from what was really said:
// the conversation that request earlier sent and the answer to it take the place
// of what is recorded of them. Other requests, and failed answers, change nothing.
func (t *Target) Follow(index, earlier int, answer *record.Record) {
	if !answer.OK() || index < 0 || index >= len(t.requests) || t.requests[index].Messages == nil {
		return
	}
	var messages []map[string]json.RawMessage
	if json.Unmarshal(t.requests[index].Messages, &messages) != nil {
		return
	}
	last := lastAnswer(messages)
	if last < 0 {
		return
	}
	text, err := json.Marshal(answer.Text)
	if err != nil {
		return
	}
	messages[last]["content"] = text
	if said := t.said(earlier); len(said) == last {
		copy(messages, said)
	}
	data, err := json.Marshal(messages)
	if err != nil {
		return
	}
	t.requests[index].Messages = data
	if index < len(t.bodies) {
		t.bodies[index] = nil // encoded anew when it is sent
	}
}

// said is the conversation that a request sent; nil if it was none.
func (t *Target) said(index int) []map[string]json.RawMessage {
	if index < 0 || index >= len(t.requests) {
		return nil
	}
	var messages []map[string]json.RawMessage
	if json.Unmarshal(t.requests[index].Messages, &messages) != nil {
		return nil
	}
	return messages
}

func lastAnswer(messages []map[string]json.RawMessage) int {
	for i := len(messages) - 1; i >= 0; i-- {
		var role string
		if json.Unmarshal(messages[i]["role"], &role) == nil && role == "assistant" {
			return i
		}
	}
	return -1
}

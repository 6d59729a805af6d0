package loadgen

import (
	"encoding/json"

	"github.com/minisgl/minisgl/bench/internal/record"
)

// Follow puts the answer that the server really gave in the place of the last
// recorded one in the conversation of request index, so that a replayed chat
// goes on from what was said. Other requests, and failed answers, change nothing.
func (t *Target) Follow(index int, answer *record.Record) {
	if !answer.OK() || index < 0 || index >= len(t.requests) || t.requests[index].Messages == nil {
		return
	}
	var messages []map[string]json.RawMessage
	if json.Unmarshal(t.requests[index].Messages, &messages) != nil {
		return
	}
	for i := len(messages) - 1; i >= 0; i-- {
		var role string
		if json.Unmarshal(messages[i]["role"], &role) != nil || role != "assistant" {
			continue
		}
		text, err := json.Marshal(answer.Text)
		if err != nil {
			return
		}
		messages[i]["content"] = text
		if data, err := json.Marshal(messages); err == nil {
			t.requests[index].Messages = data
			if index < len(t.bodies) {
				t.bodies[index] = nil // encoded anew when it is sent
			}
		}
		return
	}
}

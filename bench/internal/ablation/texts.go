package ablation

import (
	"fmt"

	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// textLoad is a list of prompts of one kind.
type textLoad struct {
	name string
	reqs []llm.Request
}

const notice = `The harbour of Lindholm opens at six in the morning. Fishing boats leave first, and the ferry to the islands follows at half past seven. Tickets are sold in the red house beside the pier. A single ticket costs four crowns, and a return ticket costs seven crowns. Children under six travel free. Bicycles need a ticket of their own. In winter the ferry leaves only twice a day, and when there is ice it does not leave at all.`

const members = `[
  {"id": 1, "name": "Anna", "city": "Lindholm", "active": true, "tags": ["new", "member"]},
  {"id": 2, "name": "Bengt", "city": "Lindholm", "active": false, "tags": ["member"]},
  {"id": 3, "name": "Carla", "city": "Norrby", "active": true, "tags": ["new"]},
  {"id": 4, "name": "David", "city": "Norrby", "active": true, "tags": ["member"]},
  {"id": 5,`

// edits and records end where a small model goes on with what is asked for.
var (
	edits = []string{
		"Task: Replace \"crowns\" with \"euros\" in the text.\n\nText: " + notice + "\n\nText with \"euros\": The harbour of Lindholm opens",
		"Draft:\n" + notice + "\n\nThe same with a heading:\n\n# Ferry times\n\nThe harbour of Lindholm opens",
	}
	records   = []string{members, "Members as JSON:\n\n" + members}
	questions = []string{
		"Tell me about the history of Rome.",
		"What is the difference between a list and a tuple in Python?",
		"Give me a recipe for pancakes.",
		"Write a short story about a lighthouse keeper.",
		"Why is the sky blue?",
		"I feel tired at work. What can I do?",
	}
)

// speculationLoads are texts to edit, records to continue, and chats, each of so
// many requests at least.
func speculationLoads(eng *llm.LLM, output, least int) ([]textLoad, error) {
	greedy := engine.Greedy(output)
	chat := llm.DefaultSampling()
	chat.MaxTokens, chat.Temperature = output, 0.7
	loads := []textLoad{{name: "edit a text"}, {name: "JSON records"}, {name: "chat"}}
	for i := range max(len(edits), least) {
		loads[0].reqs = append(loads[0].reqs, llm.Request{Text: edits[i%len(edits)], Params: greedy})
	}
	for i := range max(len(records), least) {
		loads[1].reqs = append(loads[1].reqs, llm.Request{Text: records[i%len(records)], Params: greedy})
	}
	for i := range max(len(questions), least) {
		req, err := ask(eng, questions[i%len(questions)])
		if err != nil {
			return nil, err
		}
		req.Params = chat
		req.Params.Seed = new(uint64(i))
		loads[2].reqs = append(loads[2].reqs, req)
	}
	return loads, nil
}

// ask is a chat's first message, or the bare text where a model has no template.
func ask(eng *llm.LLM, question string) (llm.Request, error) {
	if !eng.Tokenizer().HasChatTemplate() {
		return llm.Request{Text: question}, nil
	}
	ids, err := eng.EncodeChat([]tokenizer.Message{{Role: "user", Content: question}}, tokenizer.TemplateOptions{AddGenerationPrompt: true})
	if err != nil {
		return llm.Request{}, fmt.Errorf("ablation: %q: %w", question, err)
	}
	return llm.Request{TokenIDs: ids}, nil
}

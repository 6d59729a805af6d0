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

// longKeys and shortKeys are JSON schemas for what notice says.
const (
	longKeys = `{"type": "object", "properties": {
  "opening_time_of_the_harbour": {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"},
  "departure_of_the_first_ferry": {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"},
  "place_where_tickets_are_sold": {"type": "string", "maxLength": 20},
  "price_of_a_single_ticket_in_crowns": {"type": "integer", "minimum": 0, "maximum": 99},
  "price_of_a_return_ticket_in_crowns": {"type": "integer", "minimum": 0, "maximum": 99},
  "children_under_six_travel_free": {"type": "boolean"},
  "bicycles_need_a_ticket_of_their_own": {"type": "boolean"},
  "number_of_departures_a_day_in_winter": {"type": "integer", "minimum": 0, "maximum": 99}},
  "required": ["opening_time_of_the_harbour", "departure_of_the_first_ferry", "place_where_tickets_are_sold",
    "price_of_a_single_ticket_in_crowns", "price_of_a_return_ticket_in_crowns", "children_under_six_travel_free",
    "bicycles_need_a_ticket_of_their_own", "number_of_departures_a_day_in_winter"], "additionalProperties": false}`
	shortKeys = `{"type": "object", "properties": {"place": {"type": "string", "maxLength": 60}, "opens": {"type": "string", "maxLength": 60},
  "ferry": {"type": "string", "maxLength": 60}, "single": {"type": "integer"}, "return": {"type": "integer"}},
  "required": ["place", "opens", "ferry", "single", "return"], "additionalProperties": false}`
)

// schemaLoads are so many requests for JSON at least by each schema.
func schemaLoads(least int) []textLoad {
	var loads []textLoad
	for _, l := range []struct{ name, schema string }{{"long keys", longKeys}, {"short keys", shortKeys}} {
		p := engine.Greedy(400)
		p.Grammar = llm.Grammar{Kind: llm.GrammarJSONSchema, Text: l.schema}
		load := textLoad{name: l.name}
		for i := range max(2, least) {
			load.reqs = append(load.reqs, llm.Request{Text: fmt.Sprintf("%s\n\nNotice %d as JSON:\n", notice, i+1), Params: p})
		}
		loads = append(loads, load)
	}
	return loads
}

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

package mockserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// fields is a JSON object.
type fields map[string]any

// part is what one chunk says of the answer.
type part struct {
	role, text, finish string
}

// chunk is an event with a part of the answer, after so many tokens; without a
// part it only carries counts.
func (a *answer) chunk(tokens int, p *part) fields {
	if p != nil {
		a.text.WriteString(p.text)
	}
	switch a.api {
	case generateAPI:
		return a.generateChunk(tokens, p.finish)
	case tritonAPI:
		return fields{"text_output": p.text}
	}
	c := fields{"id": "mock", "model": a.cfg.Model, "choices": []fields{}}
	if p != nil {
		c["choices"] = []fields{a.choice(p)}
	}
	if a.usage == UsageContinuous {
		c["usage"] = a.count(tokens)
	}
	return c
}

func (a *answer) choice(p *part) fields {
	c := fields{"index": 0, "finish_reason": nil}
	if p.finish != "" {
		c["finish_reason"] = p.finish
	}
	channel := "content"
	if a.cfg.Reasoning {
		channel = "reasoning_content"
	}
	switch {
	case a.api == completionsAPI:
		c["text"] = p.text
	case p.role != "":
		c["delta"] = fields{"role": p.role, "content": ""}
	case p.finish != "":
		c["delta"] = fields{}
	default:
		c["delta"] = fields{channel: p.text}
	}
	return c
}

// generateChunk has the text so far, as sglang sends it.
func (a *answer) generateChunk(tokens int, finish string) fields {
	meta := fields{"id": "mock", "finish_reason": nil}
	if a.usage == UsageContinuous || a.usage == UsageFinal && finish != "" {
		meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"] = a.prompt, tokens, a.cfg.CachedTokens
	}
	if finish != "" {
		meta["finish_reason"] = fields{"type": finish}
	}
	return fields{"text": a.text.String(), "meta_info": meta}
}

func (a *answer) count(tokens int) fields {
	return fields{
		"prompt_tokens": a.prompt, "completion_tokens": tokens, "total_tokens": a.prompt + tokens,
		"prompt_tokens_details": fields{"cached_tokens": a.cfg.CachedTokens},
	}
}

// document answers in one piece, when a stream would have ended.
func (a *answer) document(total int) {
	if !a.wait(a.cfg.TTFT + time.Duration(max(total-1, 0))*a.cfg.ITL) {
		return
	}
	a.text.WriteString(a.words(0, total, a.cfg.EmptyText))
	doc := a.generateChunk(total, "length")
	switch a.api {
	case chatAPI:
		doc = fields{"choices": []fields{{"message": fields{"role": "assistant", "content": a.text.String()}, "finish_reason": "length"}}, "usage": a.count(total)}
	case completionsAPI:
		doc = fields{"choices": []fields{{"text": a.text.String(), "finish_reason": "length"}}, "usage": a.count(total)}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	writeJSON(a.w, string(data))
}

// control answers requests that generate nothing.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return
	}
	s.mu.Lock()
	if !s.cfg.Forget {
		s.calls = append(s.calls, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	}
	s.mu.Unlock()
	switch r.URL.Path {
	case "/flush_cache", "/reset_prefix_cache", "/start_profile", "/stop_profile":
		fmt.Fprintln(w, "done")
	case "/server_info":
		writeJSON(w, s.info())
	case "/tokenize":
		tokenize(w, body)
	case "/detokenize":
		detokenize(w, body)
	case "/metrics":
		s.metrics(w)
	default:
		http.NotFound(w, r)
	}
}

// info has what sglang's one-batch benchmark asks of a server.
func (s *Server) info() string {
	running, capacity := cmp.Or(s.cfg.Slots, 1<<20), cmp.Or(s.cfg.TokenCapacity, 1_000_000)
	return fmt.Sprintf(`{"tokenizer_path":"","internal_states":[{"avg_spec_accept_length":null,"last_gen_throughput":123.5,`+
		`"effective_max_running_requests_per_dp":%d,"memory_usage":{"token_capacity":%d}}],"version":"mock"}`, running, capacity)
}

// tokenize makes a token of each word: its number, or its length.
func tokenize(w http.ResponseWriter, body []byte) {
	var req struct {
		Prompt string `json:"prompt"`
	}
	if json.Unmarshal(body, &req) != nil {
		refuse(w, http.StatusBadRequest, "the body is not JSON")
		return
	}
	ids := []int{}
	for _, word := range strings.Fields(req.Prompt) {
		id := len(word)
		if _, err := fmt.Sscanf(word, "t%d", &id); err != nil {
			id = len(word)
		}
		ids = append(ids, id)
	}
	data, _ := json.Marshal(fields{"tokens": ids, "count": len(ids), "max_model_len": 4096})
	writeJSON(w, string(data))
}

func detokenize(w http.ResponseWriter, body []byte) {
	var req struct {
		Tokens []int `json:"tokens"`
	}
	if json.Unmarshal(body, &req) != nil {
		refuse(w, http.StatusBadRequest, "the body is not JSON")
		return
	}
	words := make([]string, len(req.Tokens))
	for i, id := range req.Tokens {
		words[i] = fmt.Sprintf("t%d", id)
	}
	data, _ := json.Marshal(fields{"text": strings.Join(words, " ")})
	writeJSON(w, string(data))
}

func (s *Server) metrics(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.inFlight
	if s.cfg.Slots > 0 {
		running = min(running, s.cfg.Slots)
	}
	fmt.Fprintf(w, "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs %d\nsglang:num_queue_reqs %d\nsglang:prompt_tokens_total %d\nsglang:cached_tokens_total %d\n",
		running, s.inFlight-running, s.requests*s.cfg.PromptTokens, s.requests*s.cfg.CachedTokens)
}

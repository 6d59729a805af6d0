package tokens

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/minisgl/minisgl/bench/internal/loadgen"
)

const remoteWait = 30 * time.Second

// Remote asks a server for tokens.
type Remote struct {
	http        *loadgen.HTTP
	base, model string
	vocab       int
	special     int
}

// Dial checks that the server at base answers /tokenize and /detokenize, and
// returns a tokenizer that asks it. vocab is the size of its vocabulary.
func Dial(ctx context.Context, client *loadgen.HTTP, base, model string, vocab int) (*Remote, error) {
	r := &Remote{http: client, base: base, model: model, vocab: vocab}
	ctx, cancel := context.WithTimeout(ctx, remoteWait)
	defer cancel()
	plain, err := r.encode(ctx, "a", false)
	if err != nil {
		return nil, err
	}
	special, err := r.encode(ctx, "a", true)
	if err != nil {
		return nil, err
	}
	r.special = max(len(special)-len(plain), 0)
	if _, err := r.decode(ctx, plain); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Remote) call(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	status, data, err := r.http.Fetch(ctx, http.MethodPost, r.base+path, body)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("tokens: POST %s%s: %d %s", r.base, path, status, http.StatusText(status))
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("tokens: POST %s%s: %w", r.base, path, err)
	}
	return nil
}

func (r *Remote) encode(ctx context.Context, text string, special bool) ([]int32, error) {
	var answer struct {
		Tokens []int32 `json:"tokens"`
	}
	request := map[string]any{"model": r.model, "prompt": text, "add_special_tokens": special}
	if err := r.call(ctx, "/tokenize", request, &answer); err != nil {
		return nil, err
	}
	if len(answer.Tokens) == 0 && text != "" {
		return nil, fmt.Errorf("tokens: POST %s/tokenize: no tokens for %q", r.base, text)
	}
	return answer.Tokens, nil
}

// decode reads vLLM's answer, "prompt", and sglang's, "text".
func (r *Remote) decode(ctx context.Context, ids []int32) (string, error) {
	var answer struct {
		Prompt *string `json:"prompt"`
		Text   *string `json:"text"`
	}
	request := map[string]any{"model": r.model, "tokens": ids}
	if err := r.call(ctx, "/detokenize", request, &answer); err != nil {
		return "", err
	}
	switch {
	case answer.Prompt != nil:
		return *answer.Prompt, nil
	case answer.Text != nil:
		return *answer.Text, nil
	}
	return "", fmt.Errorf("tokens: POST %s/detokenize: the answer has no text", r.base)
}

// Close does nothing.
func (r *Remote) Close() error { return nil }

// Encode returns the ids of text.
func (r *Remote) Encode(text string, special bool) ([]int32, error) {
	ctx, cancel := context.WithTimeout(context.Background(), remoteWait)
	defer cancel()
	return r.encode(ctx, text, special)
}

// Decode returns the text of ids.
func (r *Remote) Decode(ids []int32) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), remoteWait)
	defer cancel()
	return r.decode(ctx, ids)
}

// VocabSize returns the size given to Dial.
func (r *Remote) VocabSize() int { return r.vocab }

// AllTokens returns the size given to Dial.
func (r *Remote) AllTokens() int { return r.vocab }

// NumSpecial returns how many tokens the server puts around a text.
func (r *Remote) NumSpecial() int { return r.special }

// Template fails: servers do not offer it.
func (r *Remote) Template(string) (string, error) {
	return "", fmt.Errorf("tokens: a chat template needs a tokenizer on this machine: --tokenizer DIR")
}

// Source says where the tokens come from.
func (r *Remote) Source() string { return "the server's /tokenize" }

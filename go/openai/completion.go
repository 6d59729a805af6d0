package openai

import "github.com/minisgl/minisgl/go/internal/core"

// CompletionRequest is a valid request to /v1/completions. Its answer has N
// choices for the first prompt, then N for the second, and so on.
type CompletionRequest struct {
	Generation
	Prompts []Prompt // at least one
	Many    bool     // they came as a list
	Echo    bool     // put the prompt before each text
}

const completionTokens = 16 // OpenAI's default

// DefaultCompletion is OpenAI's sampling of a completion.
func DefaultCompletion() core.SamplingParams {
	p := DefaultSampling()
	p.MaxTokens = completionTokens
	return p
}

// ParseCompletion reads and checks the body of a completion request, by the
// rules of ParseChat.
func ParseCompletion(data []byte, absent core.SamplingParams) (*CompletionRequest, error) {
	f, err := parseBody(data)
	if err != nil {
		return nil, err
	}
	req := &CompletionRequest{Generation: parseGeneration(f, absent), Echo: f.flag("echo")}
	req.Prompts, req.Many = f.prompts("prompt")
	checkChoices(f, "prompt", len(req.Prompts)*req.N)
	parseTextLogprobs(f, req)
	refuse(f, unsupported)
	refuse(f, []field{{"suffix", []string{`""`}}, {"best_of", []string{"1"}}})
	if f.err != nil {
		return nil, f.err
	}
	return req, nil
}

// parseTextLogprobs reads the number of alternatives to report beside each token.
func parseTextLogprobs(f *fields, req *CompletionRequest) {
	const member = "logprobs"
	if _, ok := f.raw(member); !ok {
		return
	}
	p := &req.Sampling
	p.Logprobs, p.TopLogprobs = true, f.integer(member, 0)
	if p.TopLogprobs < 0 || p.TopLogprobs > core.MaxTopLogprobs {
		f.fail(Invalid(f.name(member), "must be from 0 to %d, got %d", core.MaxTopLogprobs, p.TopLogprobs))
	}
	if req.Echo {
		p.PromptLogprobs = new(0)
	}
}

// checkChoices bounds what one request may ask for.
func checkChoices(f *fields, member string, choices int) {
	if choices > MaxPrompts {
		f.fail(Invalid(f.name(member), "asks for %d choices, but a request may have at most %d", choices, MaxPrompts))
	}
}

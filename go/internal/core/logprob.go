package core

// MaxTopLogprobs bounds SamplingParams.TopLogprobs; the number is OpenAI's.
const MaxTopLogprobs = 20

// TokenLogprob is a token's log-probability, beside those of the likeliest tokens
// in its place, in descending order.
type TokenLogprob struct {
	Token   int32
	Logprob float32
	Top     []Logprob
}

// Logprob is one of a TokenLogprob's alternatives.
type Logprob struct {
	Token   int32
	Logprob float32
}

// Score is what a batch found out about one token of a request.
type Score struct {
	UID    UID
	Prompt bool // a token of the prompt, else the one that the batch sampled
	TokenLogprob
}

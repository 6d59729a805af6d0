package openai

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ChatLogprobs are the log-probabilities of a chat's tokens.
type ChatLogprobs struct {
	Content []ChatLogprob `json:"content"`
	Refusal []ChatLogprob `json:"refusal"`
}

// ChatLogprob is that of a token, beside the likeliest in its place.
type ChatLogprob struct {
	TokenText
	Logprob Logprob     `json:"logprob"`
	Top     []ChatTopLP `json:"top_logprobs"`
}

// ChatTopLP is one of a ChatLogprob's alternatives.
type ChatTopLP struct {
	TokenText
	Logprob Logprob `json:"logprob"`
}

// TokenText is a token as text, and as bytes: it may hold a part of a character,
// for which the text has U+FFFD.
type TokenText struct {
	Token string `json:"token"`
	Bytes []int  `json:"bytes"`
}

// TextOfToken returns a token's TokenText.
func TextOfToken(token []byte) TokenText {
	t := TokenText{Token: strings.ToValidUTF8(string(token), "\ufffd"), Bytes: make([]int, len(token))}
	for i, b := range token {
		t.Bytes[i] = int(b)
	}
	return t
}

// TextLogprobs are the log-probabilities of a completion's tokens, in columns.
type TextLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*Logprob           `json:"token_logprobs"` // nil for a prompt's first token
	TopLogprobs   []map[string]Logprob `json:"top_logprobs"`   // of the likeliest tokens, and of the token itself; nil if none were asked for
	TextOffset    []int                `json:"text_offset"`    // characters before each token
}

// NameOfToken is what TextLogprobs call a token: its text, or, if it holds a part
// of a character, "bytes:\\xe2\\x80" as OpenAI writes it.
func NameOfToken(token []byte) string {
	if utf8.Valid(token) {
		return string(token)
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for _, c := range token {
		fmt.Fprintf(&b, "\\x%02x", c)
	}
	return b.String()
}

// Logprob is a log-probability. That of a token that can't be is written as
// -9999, OpenAI's number for a very unlikely one: JSON has no infinity.
type Logprob float32

// NewLogprob returns x as it is written.
func NewLogprob(x float32) Logprob { return Logprob(max(x, -9999)) }

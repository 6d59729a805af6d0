package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// sdk is OpenAI's own client of a server of the tiny model.
func sdk(t *testing.T, cfg Config) openai.Client {
	s, _ := caseServer(t, cfg)
	url, client := listen(t, s)
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithHTTPClient(client), option.WithAPIKey("k"), option.WithMaxRetries(0))
}

func chatParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               "m",
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("s"), openai.UserMessage("hi")},
		MaxCompletionTokens: openai.Int(12),
		Temperature:         openai.Float(1),
		TopP:                openai.Float(0.9),
		Seed:                openai.Int(7),
		PresencePenalty:     openai.Float(0.5),
		FrequencyPenalty:    openai.Float(0.25),
		LogitBias:           map[string]int64{"65": 40, "66": 40},
		Logprobs:            openai.Bool(true),
		TopLogprobs:         openai.Int(3),
		N:                   openai.Int(2),
		Stop:                openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"#"}},
		User:                openai.String("u"),
		Store:               openai.Bool(false),
		StreamOptions:       openai.ChatCompletionStreamOptionsParam{},
	}
}

func ignoreEOS() option.RequestOption { return option.WithJSONSet("ignore_eos", true) }

// TestSDKChat drives every field of a chat with openai-go, whole and streamed.
func TestSDKChat(t *testing.T) {
	client := sdk(t, Config{})
	whole, err := client.Chat.Completions.New(t.Context(), chatParams(), ignoreEOS())
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 2 || whole.Usage.CompletionTokens != 24 || whole.Usage.PromptTokensDetails.CachedTokens < 0 || whole.Object != "chat.completion" {
		t.Errorf("got %s", whole.RawJSON())
	}
	params := chatParams()
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(t.Context(), params, ignoreEOS())
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		chunk := stream.Current()
		if !acc.AddChunk(chunk) {
			t.Fatalf("the SDK can't add %s", chunk.RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	for i, c := range whole.Choices {
		got := acc.Choices[i]
		if got.Message.Content != c.Message.Content || got.FinishReason != c.FinishReason || c.FinishReason != "length" {
			t.Errorf("choice %d: streamed %q (%s), whole %q (%s)", i, got.Message.Content, got.FinishReason, c.Message.Content, c.FinishReason)
		}
		if len(c.Logprobs.Content) != 12 || len(got.Logprobs.Content) != 12 {
			t.Fatalf("choice %d: %d log-probabilities, streamed %d", i, len(c.Logprobs.Content), len(got.Logprobs.Content))
		}
		for k, token := range c.Logprobs.Content {
			if token.Logprob != got.Logprobs.Content[k].Logprob || len(token.TopLogprobs) != 3 || token.Logprob > 0 {
				t.Errorf("choice %d, token %d: %s", i, k, token.RawJSON())
			}
		}
	}
	if diff := cmp.Diff([]int64{whole.Usage.PromptTokens, 24}, []int64{acc.Usage.PromptTokens, acc.Usage.CompletionTokens}); diff != "" {
		t.Error(diff)
	}
}

// TestSDKCompletion drives every field of a completion.
func TestSDKCompletion(t *testing.T) {
	client := sdk(t, Config{})
	params := openai.CompletionNewParams{
		Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"ab", "cd"}},
		MaxTokens: openai.Int(5), Temperature: openai.Float(1), TopP: openai.Float(0.9), Seed: openai.Int(1), N: openai.Int(2), BestOf: openai.Int(1),
		Echo: openai.Bool(true), Logprobs: openai.Int(2), PresencePenalty: openai.Float(1), FrequencyPenalty: openai.Float(-1),
		LogitBias: map[string]int64{"65": 50, "66": 50, "67": 50}, Stop: openai.CompletionNewParamsStopUnion{OfString: openai.String("#")}, User: openai.String("u"),
	}
	whole, err := client.Completions.New(t.Context(), params, ignoreEOS())
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 4 {
		t.Fatalf("got %s", whole.RawJSON())
	}
	for i, c := range whole.Choices {
		prompt := []string{"ab", "cd"}[i/2]
		l := c.Logprobs
		if !strings.HasPrefix(c.Text, prompt) || len(c.Text) != 7 || len(l.Tokens) != 7 || strings.Join(l.Tokens, "") != c.Text || len(l.TokenLogprobs) != 7 {
			t.Errorf("choice %d: %s", i, c.RawJSON())
		}
		if diff := cmp.Diff([]int64{0, 1, 2, 3, 4, 5, 6}, l.TextOffset); diff != "" {
			t.Errorf("choice %d: offsets: %s", i, diff)
		}
	}
	texts := make([]string, 4)
	stream := client.Completions.NewStreaming(t.Context(), params, ignoreEOS())
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			texts[c.Index] += c.Text
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	for i, c := range whole.Choices {
		if texts[i] != c.Text {
			t.Errorf("choice %d: streamed %q, whole %q", i, texts[i], c.Text)
		}
	}
	ids, err := client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfTokenArrays: [][]int64{{1, 2}, {3}}}, MaxTokens: openai.Int(1),
	})
	if err != nil || len(ids.Choices) != 2 || ids.Usage.PromptTokens != 3 {
		t.Errorf("token ids: %v", err)
	}
}

// TestSDKErrors: the SDK finds what it looks for in an error.
func TestSDKErrors(t *testing.T) {
	client := sdk(t, Config{ModelName: "org/tiny", StrictModel: true})
	for name, test := range map[string]struct {
		change func(p *openai.ChatCompletionNewParams)
		status int
		param  string
		code   string
	}{
		"model":        {func(p *openai.ChatCompletionNewParams) { p.Model = "other" }, 404, "model", "model_not_found"},
		"top_logprobs": {func(p *openai.ChatCompletionNewParams) { p.TopLogprobs = openai.Int(21) }, 400, "top_logprobs", ""},
		"penalty":      {func(p *openai.ChatCompletionNewParams) { p.PresencePenalty = openai.Float(3) }, 400, "presence_penalty", ""},
		"bias":         {func(p *openai.ChatCompletionNewParams) { p.LogitBias = map[string]int64{"9999999": 1} }, 400, "logit_bias", ""},
		"audio":        {func(p *openai.ChatCompletionNewParams) { p.Modalities = []string{"audio"} }, 400, "modalities", "unsupported_parameter"},
		"messages":     {func(p *openai.ChatCompletionNewParams) { p.Messages = nil }, 400, "messages", ""},
	} {
		params := chatParams()
		params.Model = "org/tiny"
		test.change(&params)
		_, err := client.Chat.Completions.New(t.Context(), params)
		var api *openai.Error
		if !errors.As(err, &api) || api.StatusCode != test.status || api.Param != test.param || api.Code != test.code || api.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	models, err := client.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "org/tiny" {
		t.Errorf("models: %v %v", models, err)
	}
	if m, err := client.Models.Get(t.Context(), "org/tiny"); err != nil || m.OwnedBy != "minisgl" {
		t.Errorf("model: %v %v", m, err)
	}
}

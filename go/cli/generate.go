package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/internal/server"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

const maxPrompt = 32 << 20 // bytes of a prompt from stdin

func registerSampling(flags *pflag.FlagSet, p *llm.SamplingParams) {
	inGroup(flags, samplingGroup, func() { defineSampling(flags, p) })
}

func defineSampling(flags *pflag.FlagSet, p *llm.SamplingParams) {
	flags.IntVar(&p.MaxTokens, "max-tokens", p.MaxTokens, "tokens to generate at most")
	flags.Float64Var(&p.Temperature, "temperature", p.Temperature, "0: always the likeliest token")
	flags.IntVar(&p.TopK, "top-k", p.TopK, "choose among the k likeliest tokens; -1: all")
	flags.Float64Var(&p.TopP, "top-p", p.TopP, "choose among the likeliest tokens of this probability together")
	flags.Float64Var(&p.MinP, "min-p", p.MinP, "leave out tokens below this share of the likeliest one")
	flags.Float64Var(&p.PresencePenalty, "presence-penalty", p.PresencePenalty, "subtracted from the logits of tokens that were generated, -2 to 2")
	flags.Float64Var(&p.FrequencyPenalty, "frequency-penalty", p.FrequencyPenalty, "subtracted as often as they were, -2 to 2")
	flags.Float64Var(&p.RepetitionPenalty, "repetition-penalty", p.RepetitionPenalty, "divides their logits, above 0 to 2")
	flags.BoolVar(&p.IgnoreEOS, "ignore-eos", p.IgnoreEOS, "go on past the end of the answer")
}

func generateCommand(p *program) *cobra.Command {
	var engine engineFlags
	var chat, stream bool
	engine.logLevel.quiet()
	params := llm.DefaultSampling()
	params.MaxTokens = 128
	cmd := &cobra.Command{
		Use:   "generate [flags] [prompt...]",
		Short: "Continue prompts: the arguments, or all of stdin as one",
		RunE: func(cmd *cobra.Command, prompts []string) error {
			if err := errors.Join(engine.check(), params.Validate()); err != nil {
				return err
			}
			if len(prompts) == 0 {
				prompt, err := readPrompt(p.stdin)
				if err != nil {
					return err
				}
				prompts = []string{prompt}
			}
			return p.generate(cmd.Context(), &engine, prompts, params, chat, stream)
		},
	}
	cmd.Flags().BoolVar(&chat, "chat", false, "use the model's chat template: the prompt is a user's message")
	cmd.Flags().BoolVar(&stream, "stream", false, "print tokens as they come, one prompt after the other")
	registerSampling(cmd.Flags(), &params)
	engine.register(cmd.Flags())
	acceptSettings(cmd)
	groupHelp(cmd, append([]string{samplingGroup}, engineGroups...)...)
	acceptNames(cmd, engineAliases)
	return cmd
}

func readPrompt(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPrompt+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the prompt: %w", err)
	case len(data) > maxPrompt:
		return "", fmt.Errorf("read the prompt: it is longer than %d bytes", maxPrompt)
	case len(data) == 0:
		return "", usageErrorf("there is no prompt; give one as an argument or on stdin")
	}
	return string(data), nil
}

func (p *program) generate(ctx context.Context, flags *engineFlags, prompts []string, params llm.SamplingParams, chat, stream bool) (err error) {
	e, err := p.engines.New(ctx, flags.config(flags.logger(p.stderr)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	reqs := make([]llm.Request, len(prompts))
	for i, prompt := range prompts {
		reqs[i] = llm.Request{Text: prompt, Params: params}
		if chat {
			if reqs[i].TokenIDs, err = encodeChat(e, []tokenizer.Message{{Role: "user", Content: prompt}}); err != nil {
				return err
			}
		}
	}
	begin := time.Now()
	var usage llm.Usage
	if stream {
		usage, err = p.printStreams(ctx, e, reqs)
	} else {
		usage, err = p.printOutputs(ctx, e, reqs)
	}
	if err == nil {
		p.printSpeed(usage, time.Since(begin))
	}
	return err
}

func encodeChat(e server.Engine, msgs []tokenizer.Message) ([]int32, error) {
	return e.EncodeChat(msgs, tokenizer.TemplateOptions{AddGenerationPrompt: true})
}

// printOutputs runs all requests together.
func (p *program) printOutputs(ctx context.Context, e engine, reqs []llm.Request) (llm.Usage, error) {
	var total llm.Usage
	outputs, err := e.Generate(ctx, reqs, nil)
	if err != nil {
		return total, err
	}
	for i, out := range outputs {
		p.printTitle(i, len(reqs))
		fmt.Fprintln(p.stdout, out.Text)
		total = sum(total, out.Usage)
	}
	return total, nil
}

// printStreams runs one request after the other.
func (p *program) printStreams(ctx context.Context, e engine, reqs []llm.Request) (llm.Usage, error) {
	var total llm.Usage
	for i, req := range reqs {
		p.printTitle(i, len(reqs))
		usage, err := p.printStream(ctx, e, req)
		fmt.Fprintln(p.stdout)
		total = sum(total, usage)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// printTitle numbers the answers if there are several.
func (p *program) printTitle(i, n int) {
	if n > 1 {
		fmt.Fprintf(p.stdout, "--- %d\n", i+1)
	}
}

// printStream prints a request's text as it comes.
func (p *program) printStream(ctx context.Context, e server.Engine, req llm.Request) (llm.Usage, error) {
	return readStream(ctx, e, req, func(text string) { fmt.Fprint(p.stdout, text) })
}

// readStream calls emit with the text of each token. It returns the tokens that
// came, also with an error.
func readStream(ctx context.Context, e server.Engine, req llm.Request, emit func(text string)) (usage llm.Usage, err error) {
	stream, err := e.Stream(ctx, req)
	if err != nil {
		return usage, err
	}
	defer stream.Close()
	for {
		ev, err := stream.Next(ctx)
		if err != nil {
			return usage, err
		}
		usage = ev.Usage
		if ev.HasToken || ev.Text != "" {
			emit(ev.Text)
		}
		switch ev.Finish {
		case "":
		case llm.FinishError:
			return usage, ev.Err
		case llm.FinishAbort:
			return usage, errors.Join(ctx.Err(), errors.New("the request was aborted"))
		default:
			return usage, nil
		}
	}
}

func sum(a, b llm.Usage) llm.Usage {
	return llm.Usage{
		PromptTokens:     a.PromptTokens + b.PromptTokens,
		CachedTokens:     a.CachedTokens + b.CachedTokens,
		CompletionTokens: a.CompletionTokens + b.CompletionTokens,
	}
}

func (p *program) printSpeed(usage llm.Usage, elapsed time.Duration) {
	fmt.Fprintf(p.stderr, "%d prompt tokens, %d generated in %.2f s: %.1f tokens/s\n",
		usage.PromptTokens, usage.CompletionTokens, elapsed.Seconds(), float64(usage.CompletionTokens)/max(elapsed.Seconds(), 1e-9))
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/go/llm"
)

func perplexityCommand(p *program) *cobra.Command {
	var engine engineFlags
	engine.logLevel.quiet()
	window := 256
	cmd := &cobra.Command{
		Use:   "perplexity [flags] [FILE]",
		Short: "Measure how well a model predicts a text: a check of quantization",
		Long: `Measure how well a model predicts a text, of a file or of stdin.

The text is cut into windows of --window tokens, each read from its own beginning.
The perplexity is exp of the mean negative log-probability of all tokens but each
window's first. Lower is better. It compares forms of one model (--quantization,
--dtype, files), not models whose tokens differ.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if window < 2 || window > maxBenchTokens {
				return usageErrorf("--window must be from 2 to %d, got %d", maxBenchTokens, window)
			}
			if err := engine.check(); err != nil {
				return err
			}
			in := p.stdin
			if len(args) == 1 {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			text, err := readPrompt(in)
			if err != nil {
				return err
			}
			return p.perplexity(cmd.Context(), &engine, text, window)
		},
	}
	cmd.Flags().IntVar(&window, "window", window, "tokens that are read together")
	engine.register(cmd.Flags())
	acceptSettings(cmd)
	acceptNames(cmd, engineAliases)
	return cmd
}

func (p *program) perplexity(ctx context.Context, flags *engineFlags, text string, window int) (err error) {
	e, err := p.engines.New(ctx, flags.config(flags.logger(p.stderr)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	ids, err := e.Encode(text, false)
	if err != nil {
		return err
	}
	reqs := windows(ids, window)
	if len(reqs) == 0 {
		return usageErrorf("the text has %d tokens: two are needed to predict one", len(ids))
	}
	outputs, err := e.Generate(ctx, reqs, nil)
	if err != nil {
		return err
	}
	sum, count := 0.0, 0
	for _, out := range outputs {
		for _, token := range out.PromptLogprobs {
			sum -= float64(token.Logprob)
			count++
		}
	}
	fmt.Fprintf(p.stdout, "perplexity %.4f over %d tokens\n", math.Exp(sum/float64(count)), count)
	return nil
}

// windows cuts a text into requests that report the probabilities of their
// prompts; a last token that is alone is left out.
func windows(ids []int32, window int) []llm.Request {
	var reqs []llm.Request
	for first := 0; first+1 < len(ids); first += window {
		params := llm.DefaultSampling()
		params.MaxTokens, params.Temperature = 1, 0
		params.Logprobs, params.PromptLogprobs = true, new(0)
		reqs = append(reqs, llm.Request{TokenIDs: ids[first:min(first+window, len(ids))], Params: params})
	}
	return reqs
}

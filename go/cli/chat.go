package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// shellSampling is what mini-sglang's shell samples with.
func shellSampling() llm.SamplingParams {
	p := llm.DefaultSampling()
	p.Temperature, p.MaxTokens = 0.6, 2048
	return p
}

func chatCommand(p *program) *cobra.Command {
	var engine engineFlags
	var system string
	engine.logLevel.quiet()
	params := shellSampling()
	cmd := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Chat with a model: each line of stdin is a message",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(engine.check(), params.Validate()); err != nil {
				return err
			}
			return p.chat(cmd.Context(), &engine, params, system)
		},
	}
	cmd.Flags().StringVar(&system, "system", "", "the system message")
	registerSampling(cmd.Flags(), &params)
	engine.register(cmd.Flags())
	acceptSettings(cmd)
	groupHelp(cmd, append([]string{samplingGroup}, engineGroups...)...)
	acceptNames(cmd, engineAliases)
	return cmd
}

func (p *program) chat(ctx context.Context, flags *engineFlags, params llm.SamplingParams, system string) (err error) {
	e, err := p.engines.New(ctx, flags.config(flags.logger(p.stderr)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	var msgs []tokenizer.Message
	if system != "" {
		msgs = append(msgs, tokenizer.Message{Role: "system", Content: system})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nextLine := readLines(ctx, p.stdin)
	for {
		fmt.Fprint(p.stderr, "> ")
		line, err := nextLine()
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(p.stderr)
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		msgs = append(msgs, tokenizer.Message{Role: "user", Content: line})
		answer, err := p.turn(ctx, e, msgs, params)
		if err != nil {
			return err
		}
		msgs = append(msgs, tokenizer.Message{Role: "assistant", Content: answer})
	}
}

// turn prints the model's answer, and returns it.
func (p *program) turn(ctx context.Context, e engine, msgs []tokenizer.Message, params llm.SamplingParams) (string, error) {
	ids, err := encodeChat(e, msgs)
	if err != nil {
		return "", err
	}
	text, _, err := p.printStream(ctx, e, llm.Request{TokenIDs: ids, Params: params})
	fmt.Fprintln(p.stdout)
	return text, err
}

// readLines returns a function that waits for the next line until ctx ends. A
// read that is under way goes on then: a terminal can't be interrupted.
func readLines(ctx context.Context, r io.Reader) func() (string, error) {
	type result struct {
		line string
		err  error
	}
	results := make(chan result)
	go func() {
		in := bufio.NewReader(io.LimitReader(r, maxPrompt))
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				err = nil // the end comes with the next call
			}
			select {
			case results <- result{strings.TrimRight(line, "\r\n"), err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return func() (string, error) {
		select {
		case r := <-results:
			return r.line, r.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

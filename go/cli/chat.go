package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/internal/shell"
	"github.com/minisgl/minisgl/go/llm"
	"github.com/minisgl/minisgl/go/tokenizer"
)

// shellPrefix begins the names of variables that set flags of chat only; they are
// mini-sglang's.
const shellPrefix = variablePrefix + "SHELL_"

// chatFlags are the options of a conversation.
type chatFlags struct {
	engine     engineFlags
	params     llm.SamplingParams
	system     string
	url        address
	apiKey     string
	modelGiven bool
}

// shellSampling is what mini-sglang's shell samples with.
func shellSampling() llm.SamplingParams {
	p := llm.DefaultSampling()
	p.Temperature, p.MaxTokens = 0.6, 2048
	return p
}

func chatCommand(p *program) *cobra.Command {
	f := &chatFlags{params: shellSampling()}
	f.engine.logLevel.quiet()
	cmd := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Chat with a model, here or of a running server; over a pipe each line is a message",
		Args:  cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			f.modelGiven = cmd.Flags().Changed("model-path")
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return p.chat(cmd.Context(), f) },
	}
	f.register(cmd.Flags())
	acceptSettings(cmd, shellPrefix)
	groupHelp(cmd, append([]string{chatGroup, samplingGroup}, engineGroups...)...)
	acceptNames(cmd, engineAliases)
	return cmd
}

func (f *chatFlags) register(flags *pflag.FlagSet) {
	inGroup(flags, chatGroup, func() {
		flags.StringVar(&f.system, "system", "", "the system message")
		flags.Var(&f.url, "url", "a server's address, such as http://127.0.0.1:1919, whose model is to answer (OpenAI's API); --model names one of several")
		flags.StringVar(&f.apiKey, "api-key", "", "the server's key")
	})
	registerSampling(flags, &f.params)
	f.engine.register(flags)
	for _, name := range []string{"host", "port", "num-tokenizer", "tokenizer-count"} {
		flags.String(name, "", "no effect: command lines of servers work with Python's minisgl.shell too")
		flags.Lookup(name).Hidden = true
	}
}

func (f *chatFlags) check() error {
	if f.engine.dummyWeight {
		return usageErrorf("--dummy-weight has nothing to say; leave it out")
	}
	return errors.Join(f.engine.check(), f.params.Validate())
}

// shellMode is serve's conversation: chat with its defaults and variables.
func (p *program) shellMode(ctx context.Context, engine engineFlags) error {
	f := &chatFlags{engine: engine, params: shellSampling()}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	defineSampling(flags, &f.params)
	if err := readVariables(flags, shellPrefix); err != nil {
		return err
	}
	return p.chat(ctx, f)
}

func (p *program) chat(ctx context.Context, f *chatFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	o := shell.Options{Params: f.params, System: f.system, DefineParams: defineSampling, Out: p.stdout, Notes: p.stderr}
	if f.url.Host != "" {
		o.Model, o.Title, err = f.remote(ctx)
	} else {
		var e engine
		if e, err = p.localEngine(ctx, &f.engine); err == nil {
			defer func() { err = errors.Join(err, e.Close()) }()
			info := e.Info()
			o.Model, o.Title = localModel{e}, fmt.Sprintf("%s on %s", info.Model, info.Device)
		}
	}
	if err != nil {
		return err
	}
	o.Title += ". /help shows the commands."
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Terminal = shell.IsTerminal(p.stdin, p.stdout); !o.Terminal {
		o.Lines = shell.NewLines(ctx, p.stdin)
		return shell.Run(ctx, o)
	}
	return p.chatInTerminal(ctx, o)
}

func (p *program) chatInTerminal(ctx context.Context, o shell.Options) (err error) {
	history, err := shell.HistoryPath()
	if err != nil {
		return err
	}
	p.takeInterrupts()
	editor, err := shell.NewEditor(history, p.stderr, p.interrupts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, editor.Close()) }()
	o.Lines, o.Interrupts = editor, p.interrupts
	return shell.Run(ctx, o)
}

func (f *chatFlags) remote(ctx context.Context) (shell.Model, string, error) {
	name := ""
	if f.modelGiven {
		name = f.engine.model
	}
	server, err := shell.Connect(ctx, &f.url.URL, f.apiKey, name)
	if err != nil {
		return nil, "", err
	}
	return server, fmt.Sprintf("%s at %s", server.ModelName, &f.url), nil
}

func (p *program) localEngine(ctx context.Context, f *engineFlags) (engine, error) {
	f.running = 1
	return p.engines.New(ctx, f.config(f.logger(p.stderr)))
}

// localModel is a model of this process.
type localModel struct{ engine }

func (m localModel) Answer(ctx context.Context, conversation []shell.Message, params llm.SamplingParams, emit func(shell.Piece)) (tokens int, err error) {
	msgs := make([]tokenizer.Message, len(conversation))
	for i, msg := range conversation {
		msgs[i] = tokenizer.Message{Role: msg.Role, Content: msg.Content}
	}
	ids, err := encodeChat(m, msgs)
	if err != nil {
		return 0, err
	}
	usage, err := readStream(ctx, m, llm.Request{TokenIDs: ids, Params: params}, func(text string) { emit(shell.Piece{Text: text}) })
	return usage.CompletionTokens, err
}

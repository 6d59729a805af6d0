// Package cli is the minisgl command line: it turns flags into the options of
// package llm and of the server, and nothing else. The minisgl program and
// python -m minisgl both run it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/go/internal/server"
	"github.com/minisgl/minisgl/go/llm"
)

// Exit codes, as shells and argparse have them.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// Run runs a command line, without the program's name, and returns the exit
// code: 0, 1 for a failure, 2 for wrong usage, 130 if ctx ended the command.
// When ctx ends, or at the process's first SIGINT, serve lets running requests end
// and returns 0; the other commands break off. A second SIGINT is the process's
// own again, as all are that come while no command runs. In a terminal, chat takes
// SIGINT to stop an answer.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	return run(ctx, args, &program{engines: llmEngines{}, stdin: stdin, stdout: stdout, stderr: stderr, interrupts: signals})
}

// engine is what the commands need of a loaded model.
type engine interface {
	server.Engine
	Generate(ctx context.Context, reqs []llm.Request, progress func(llm.Progress)) ([]llm.Output, error)
}

// engines is package llm, as far as the commands need it.
type engines interface {
	New(ctx context.Context, cfg llm.Config) (engine, error)
	OpList(ctx context.Context, model, source string) (string, error)
	Resolve(ctx context.Context, name, source string, progress io.Writer) (string, error)
}

type llmEngines struct{}

func (llmEngines) New(ctx context.Context, cfg llm.Config) (engine, error) {
	l, err := llm.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return server.LLM{LLM: l}, nil
}

func (llmEngines) OpList(ctx context.Context, model, source string) (string, error) {
	return llm.OpList(ctx, model, source)
}

func (llmEngines) Resolve(ctx context.Context, name, source string, progress io.Writer) (string, error) {
	return llm.Resolve(ctx, name, source, progress)
}

// program holds what the commands share.
type program struct {
	engines        engines
	stdin          io.Reader
	stdout, stderr io.Writer
	interrupts     chan os.Signal // end the command, until it takes them
	takeInterrupts func()
	running        bool // the command line was understood
}

func run(ctx context.Context, args []string, p *program) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.takeInterrupts = whenInterrupted(ctx, p.interrupts, cancel)
	root := &cobra.Command{
		Use:               "minisgl",
		Short:             "Run and serve language models",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRun:  func(*cobra.Command, []string) { p.running = true },
	}
	root.AddCommand(serveCommand(p), generateCommand(p), chatCommand(p), topCommand(p), opsCommand(p), fetchCommand(p), convertCommand(p), benchCommand(p), perplexityCommand(p), versionCommand(p))
	root.SetArgs(append([]string{}, args...))
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return p.exitCode(ctx, cmd, err)
}

// whenInterrupted calls end at the first interrupt, after which the process is
// again as it is without us, unless take is called before or ctx ends.
func whenInterrupted(ctx context.Context, interrupts chan os.Signal, end func()) (take func()) {
	taken, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-interrupts:
			signal.Stop(interrupts)
			end()
		case <-taken:
		case <-ctx.Done():
		}
	}()
	return func() { close(taken); <-done }
}

// exitCode also prints the error.
func (p *program) exitCode(ctx context.Context, cmd *cobra.Command, err error) int {
	var invalid *llm.InvalidError
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(p.stderr, "minisgl: interrupted")
		return exitInterrupted
	case !p.running || errors.As(err, &usage) || errors.As(err, &invalid):
		fmt.Fprintf(p.stderr, "Usage: %s\nSee '%s --help'.\n%s: error: %v\n", cmd.UseLine(), cmd.CommandPath(), cmd.CommandPath(), err)
		return exitUsage
	}
	fmt.Fprintf(p.stderr, "%s: error: %v\n", cmd.CommandPath(), err)
	return exitFailure
}

// usageError is a command line that can't be run as it stands.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usageErrorf(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

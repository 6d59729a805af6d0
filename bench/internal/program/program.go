// Package program holds what the benchmark programs share: how a command line
// is run and refused, signals, exit codes, and flags that several of them have.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRegression  = 3
	ExitInterrupted = 130
)

// UsageError is a command line that cannot be run.
type UsageError struct{ error }

// Unwrap returns the reason.
func (e UsageError) Unwrap() error { return e.error }

// Usage makes err a UsageError; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// ErrInterrupted ends a run that a signal stopped after its result was printed.
var ErrInterrupted = errors.New("interrupted")

// Interrupted returns ErrInterrupted if ctx has ended, else err.
func Interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// ErrRegression ends a comparison that found the new side to be worse.
var ErrRegression = errors.New("regression")

// Program is a command with its name.
type Program struct {
	Name string
	// Command returns a fresh command. It writes results to its Out and messages to its Err.
	Command func() *cobra.Command
	// Lists names the flags that take several values in a row, as Python's
	// argparse has them: --goodput ttft:500 tpot:50.
	Lists []string
}

// Main runs p on the arguments of the process and ends it.
func Main(p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := Run(ctx, p, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run is the program, with an exit code.
func Run(ctx context.Context, p Program, args []string, stdout, stderr io.Writer) int {
	cmd := p.Command()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	cmd.SetArgs(spread(args, p.Lists))
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrInterrupted):
		fmt.Fprintf(stderr, "%s: interrupted; the result is partial\n", p.Name)
		return ExitInterrupted
	case errors.Is(err, ErrRegression):
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return ExitRegression
	case errors.As(err, new(UsageError)):
		fmt.Fprintf(stderr, "%s: %v\nRun with --help for the flags and examples.\n", p.Name, err)
		return ExitUsage
	}
	fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
	return ExitFailed
}

// noArgs refuses arguments that are not flags.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageError{fmt.Errorf("argument %q is not a flag; all settings are flags", args[0])}
	}
	return nil
}

// spread writes "--name a b" as "--name=a --name=b" for the names in lists.
func spread(args, lists []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "--")
		if !isFlag || !slices.Contains(lists, name) || i+1 == len(args) {
			out = append(out, args[i])
			continue
		}
		if strings.HasPrefix(args[i+1], "-") {
			out = append(out, "--"+name+"=") // no value: for the flag to refuse
		}
		for i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			out = append(out, "--"+name+"="+args[i])
		}
	}
	return out
}

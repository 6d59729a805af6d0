// Client measures a chat server: it sends requests at a rate, reads the streamed
// answers and prints latency and throughput in the layout of sglang's serving
// benchmark.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// usageError is a command line that cannot be run.
type usageError struct{ error }

// errAllFailed and errInterrupted end a run whose result was printed.
var (
	errAllFailed   = errors.New("no request succeeded")
	errInterrupted = errors.New("interrupted")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program, with an exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := newCommand(stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(stderr, "client: interrupted; the result is partial")
		return exitInterrupted
	case errors.As(err, new(usageError)):
		fmt.Fprintf(stderr, "client: %v\nRun with --help for the flags and examples.\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "client: %v\n", err)
	return exitFailed
}

// Command minisgl runs and serves language models; see minisgl --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/minisgl/minisgl/go/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal lets the command end; from then on a signal ends the
	// process, as it does without us.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

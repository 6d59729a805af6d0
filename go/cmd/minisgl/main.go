// Command minisgl runs and serves language models; see minisgl --help.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/minisgl/minisgl/go/cli"
	"github.com/minisgl/minisgl/go/internal/gpu"
)

func main() {
	if err := gpu.Exec(); err != nil {
		fmt.Fprintln(os.Stderr, "minisgl: starting", gpu.Program, "instead:", err)
	}
	// SIGINT is seen to by Run. The first SIGTERM lets the command end, the second
	// ends the process, as it does without us.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

//go:build cuda

// Command minisgl-cuda is minisgl for machines with a GPU. It is a module of its own
// because gorgonia.org/cu brings many that no other program needs, and because that
// package ends a process where there is no GPU: minisgl starts it when there is one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/minisgl/minisgl/go/cli"
	"github.com/minisgl/minisgl/go/cmd/minisgl-cuda/machine"
	"github.com/minisgl/minisgl/go/internal/gpu"
)

func main() {
	gpu.Open, gpu.FlashInfer = machine.Open, machine.FlashInfer
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // as in minisgl
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Ablation switches one of the engine's optimisations off and on, runs the same
// load both ways in this process, and prints what it is worth.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/go/llm"
)

const (
	exitFailed = 1
	exitUsage  = 2
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
	running := false
	root := &cobra.Command{
		Use:               "ablation",
		Short:             "What an optimisation of the engine is worth, on this machine",
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRun:  func(*cobra.Command, []string) { running = true },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(turnsCommand(), mixedCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "ablation: %v\n", err)
	if running {
		return exitFailed
	}
	return exitUsage
}

// load starts an engine that says nothing but errors.
func load(ctx context.Context, cfg llm.Config) (*llm.LLM, error) {
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	return llm.New(ctx, cfg)
}

// newTable returns a table that prints its header as it is.
func newTable(w io.Writer) *tablewriter.Table {
	return tablewriter.NewTable(w, tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAlignment(tw.AlignRight))
}

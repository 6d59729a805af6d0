package cli

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/minisgl/minisgl/go/internal/shell"
	"github.com/minisgl/minisgl/go/internal/top"
)

func topCommand(p *program) *cobra.Command {
	server := address{url.URL{Scheme: "http", Host: "127.0.0.1:1919"}}
	var key string
	var once, asJSON bool
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch a running server: throughput, queue, KV pages, latencies",
		Long: `Watch a running server: throughput, queue, KV pages, latencies.

The figures come from the server's /ws/stats each second. q quits. A server that
goes away is waited for.`,
		Example: `  minisgl top
  minisgl top --url http://10.0.0.7:1919 --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := top.Options{Server: &server.URL, Key: key, Out: p.stdout}
			switch {
			case asJSON:
				return top.JSON(cmd.Context(), o, once)
			case once:
				return top.Once(cmd.Context(), o)
			}
			return p.top(cmd.Context(), o)
		},
	}
	cmd.Flags().Var(&server, "url", "the server's address")
	cmd.Flags().StringVar(&key, "api-key", "", "the server's key")
	cmd.Flags().BoolVar(&once, "once", false, "print one snapshot as text, and end")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the server's messages instead, a line each second")
	acceptSettings(cmd)
	acceptNames(cmd, nil)
	return cmd
}

// top watches in the terminal, whose mode it gives back.
func (p *program) top(ctx context.Context, o top.Options) (err error) {
	if !shell.IsTerminal(p.stdin, p.stdout) {
		return usageErrorf("this is no terminal; give --once for one snapshot, or --json")
	}
	in, out := p.stdin.(*os.File), p.stdout.(*os.File)
	mode, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, term.Restore(int(in.Fd()), mode)) }()
	o.Keys, o.Size = io.Reader(in), func() (columns, lines int) {
		columns, lines, err := term.GetSize(int(out.Fd()))
		if err != nil || columns <= 0 || lines <= 0 {
			return 80, 24
		}
		return columns, lines
	}
	top.Open(o)
	defer top.Close(o)
	return top.Run(ctx, o)
}

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/go/internal/server"
)

func serveCommand(p *program) *cobra.Command {
	var engine engineFlags
	var host string
	var port, tokenizers int
	var shell bool
	drain := seconds(30 * time.Second)
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve a model over HTTP, in the shape of OpenAI's API",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := engine.check(); err != nil {
				return err
			}
			if port < 0 || port > 65535 {
				return usageErrorf("--port must be 0 (any free one) to 65535, got %d", port)
			}
			if tokenizers < 0 {
				return usageErrorf("--num-tokenizer must be at least 0, got %d", tokenizers)
			}
			if shell {
				return p.chat(cmd.Context(), &engine, shellSampling(), "")
			}
			return p.serve(cmd.Context(), &engine, host, port, time.Duration(drain))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&host, "host", "127.0.0.1", "address to listen at; 0.0.0.0 for all networks")
	flags.IntVar(&port, "port", 1919, "port to listen at; 0 for any free one")
	flags.Var(&drain, "drain-timeout", "how long running requests may take to end after SIGTERM")
	flags.IntVar(&tokenizers, "num-tokenizer", 0, "no effect: each request is encoded on its own thread")
	flags.BoolVar(&shell, "shell-mode", false, "chat in the terminal instead of serving")
	engine.register(flags)
	aliases := map[string][]string{"num-tokenizer": {"tokenizer-count"}}
	for name, more := range engineAliases {
		aliases[name] = more
	}
	acceptNames(cmd, aliases)
	return cmd
}

// serve claims the port first: a clash must not come after minutes of loading.
func (p *program) serve(ctx context.Context, flags *engineFlags, host string, port int, drain time.Duration) error {
	log := flags.logger(p.stderr)
	l, err := server.Listen(ctx, host, port)
	if err != nil {
		return err
	}
	s := server.New(server.Config{DrainTimeout: drain, Logger: log})
	return s.Run(ctx, l, func(ctx context.Context) (server.Engine, error) {
		return p.engines.New(ctx, flags.config(log))
	})
}

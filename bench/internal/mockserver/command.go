package mockserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/minisgl/minisgl/bench/internal/program"
)

// Program is the server as a program.
var Program = program.Program{Name: "mockserver", Command: newCommand}

const examples = `  # first token after 20 ms, then one each 5 ms
  go run ./bench/mockserver --ttft 20ms --itl 5ms

  # a server that saturates: 4 requests at a time, others wait
  go run ./bench/mockserver --slots 4 --ttft 50ms --itl 10ms`

func newCommand() *cobra.Command {
	cfg, address := Config{}, ""
	cmd := &cobra.Command{
		Use:     "mockserver",
		Short:   "A server with known delays and faults, to check load generators against",
		Example: examples,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, cfg, address)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&address, "listen", "127.0.0.1:1919", "address to listen on")
	f.StringVar(&cfg.Model, "model", "mock", "name of the model")
	f.DurationVar(&cfg.TTFT, "ttft", 20*time.Millisecond, "time to the first token")
	f.DurationVar(&cfg.ITL, "itl", 5*time.Millisecond, "time between tokens")
	f.IntVar(&cfg.TokensPerChunk, "tokens-per-chunk", 1, "tokens that come together")
	f.IntVar(&cfg.Slots, "slots", 0, "requests served at a time, others wait; 0 means all")
	f.IntVar(&cfg.PromptTokens, "prompt-tokens", 32, "tokens reported of a prompt that is text")
	f.IntVar(&cfg.CachedTokens, "cached-tokens", 0, "of them reported as found in a cache")
	f.IntVar(&cfg.FailEvery, "fail-every", 0, "refuse each so-manieth request; 0 refuses none")
	f.IntVar(&cfg.EOSAfter, "eos-after", 0, "end answers after so many tokens; 0 ends none early")
	f.IntVar(&cfg.CutAfter, "cut-after", 0, "close the connection after so many tokens; 0 closes none")
	return cmd
}

func serve(cmd *cobra.Command, cfg Config, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return program.Usage(fmt.Errorf("--listen: %w", err))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Serving on http://%s\n", listener.Addr())
	cfg.Forget = true
	server := &http.Server{Handler: New(cfg), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(cmd.Context(), func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

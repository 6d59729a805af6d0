package mockserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/program"
)

// Program is the server as a program.
var Program = program.Program{Name: "mockserver", Command: newCommand}

const examples = `  # first token after 20 ms, then one each 5 ms
  go run ./bench/mockserver --ttft 20ms --itl 5ms

  # a server that saturates: 4 requests at a time, others wait
  go run ./bench/mockserver --slots 4 --ttft 50ms --itl 10ms

  # two that differ by 10%, for go run ./bench/compare --a-url http://127.0.0.1:1919 --b-url http://127.0.0.1:1920
  go run ./bench/mockserver --jitter 0.1 & go run ./bench/mockserver --jitter 0.1 --seed 7 --ttft 22ms --itl 5500us --listen 127.0.0.1:1920`

type command struct {
	cfg     Config
	address string
	record  string
}

func newCommand() *cobra.Command {
	c := &command{}
	return program.Spec{
		Name: "mockserver", Short: "A server with known delays and faults, to check load generators against", Examples: examples,
		Define: c.define, Check: c.check, Run: c.serve,
	}.Command()
}

func (c *command) define(f *pflag.FlagSet) {
	f.StringVar(&c.address, "listen", "127.0.0.1:1919", "address to listen on")
	f.StringVar(&c.record, "record", "", "append the body of each generation request to this file, a line each")
	f.StringVar(&c.cfg.Model, "model", "mock", "name of the model")
	f.DurationVar(&c.cfg.TTFT, "ttft", 20*time.Millisecond, "time to the first token")
	f.DurationVar(&c.cfg.ITL, "itl", 5*time.Millisecond, "time between tokens")
	f.Float64Var(&c.cfg.Jitter, "jitter", 0, "by how much the delays of answers differ: the standard deviation, as a share of them")
	f.Uint64Var(&c.cfg.Seed, "seed", 42, "seed of the jitter")
	f.IntVar(&c.cfg.TokensPerChunk, "tokens-per-chunk", 1, "tokens that come together")
	f.IntVar(&c.cfg.Slots, "slots", 0, "requests served at a time, others wait; 0 means all")
	f.IntVar(&c.cfg.PromptTokens, "prompt-tokens", 32, "tokens reported of a prompt that is text")
	f.IntVar(&c.cfg.CachedTokens, "cached-tokens", 0, "of them reported as found in a cache")
	f.IntVar(&c.cfg.FailEvery, "fail-every", 0, "refuse each so-manieth request; 0 refuses none")
	f.IntVar(&c.cfg.EOSAfter, "eos-after", 0, "end answers after so many tokens; 0 ends none early")
	f.IntVar(&c.cfg.CutAfter, "cut-after", 0, "close the connection after so many tokens; 0 closes none")
}

func (c *command) check(*pflag.FlagSet) error {
	switch {
	case !(c.cfg.Jitter >= 0 && c.cfg.Jitter <= 10):
		return fmt.Errorf("--jitter is %v: want 0 to 10", c.cfg.Jitter)
	case c.cfg.TTFT < 0 || c.cfg.ITL < 0:
		return fmt.Errorf("--ttft is %v and --itl %v: want 0 or more", c.cfg.TTFT, c.cfg.ITL)
	}
	return program.CheckBounds([]program.Bound{
		{Flag: "tokens-per-chunk", Value: c.cfg.TokensPerChunk, Low: 1, Top: program.MaxTokens},
		{Flag: "slots", Value: c.cfg.Slots, Low: 0, Top: program.MaxRequests},
		{Flag: "prompt-tokens", Value: c.cfg.PromptTokens, Low: 0, Top: program.MaxTokens},
		{Flag: "cached-tokens", Value: c.cfg.CachedTokens, Low: 0, Top: c.cfg.PromptTokens},
		{Flag: "fail-every", Value: c.cfg.FailEvery, Low: 0, Top: program.MaxRequests},
		{Flag: "eos-after", Value: c.cfg.EOSAfter, Low: 0, Top: program.MaxTokens},
		{Flag: "cut-after", Value: c.cfg.CutAfter, Low: 0, Top: program.MaxTokens},
	})
}

func (c *command) serve(ctx context.Context, stdout, _ io.Writer) (err error) {
	if c.record != "" {
		file, err := program.OpenOutput("record", c.record)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		c.cfg.Record = file
	}
	listener, err := net.Listen("tcp", c.address)
	if err != nil {
		return program.Usage(fmt.Errorf("--listen: %w", err))
	}
	fmt.Fprintf(stdout, "Serving on http://%s\n", listener.Addr())
	c.cfg.Forget = true
	server := &http.Server{Handler: New(c.cfg), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

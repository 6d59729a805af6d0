package cli

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/internal/chatparse"
	"github.com/minisgl/minisgl/go/internal/server"
)

const apiKeyVariable = "MINISGL_API_KEY"

// serveFlags are the options of serve that are not the engine's.
type serveFlags struct {
	host               string
	port, tokenizers   int
	shell              bool
	drain, timeout     seconds
	certFile, keyFile  string
	otlp, profileDir   string
	modelName          string
	strictModel        bool
	apiKey, corsOrigin string
	maxQueued          int
	toolParser         string
	reasoningParser    string
	enableMetrics      bool
	engine             engineFlags
	chosen             map[string]string // the flags that are not the default, for /ws/stats
}

func serveCommand(p *program) *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve a model over HTTP, in the shape of OpenAI's API and of sglang's own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if f.shell {
				if !cmd.Flags().Changed("log-level") {
					f.engine.logLevel.quiet()
				}
				return p.shellMode(cmd.Context(), f.engine)
			}
			f.chosen = chosen(cmd.Flags())
			return p.serve(cmd.Context(), f)
		},
	}
	f.register(cmd.Flags())
	acceptSettings(cmd)
	groupHelp(cmd, append([]string{serverGroup, accessGroup}, engineGroups...)...)
	aliases := map[string][]string{"num-tokenizer": {"tokenizer-count"}}
	for name, more := range engineAliases {
		aliases[name] = more
	}
	acceptNames(cmd, aliases)
	return cmd
}

func (f *serveFlags) register(flags *pflag.FlagSet) {
	inGroup(flags, serverGroup, func() { f.registerServer(flags) })
	inGroup(flags, accessGroup, func() { f.registerAccess(flags) })
	f.engine.register(flags)
}

func (f *serveFlags) registerServer(flags *pflag.FlagSet) {
	f.drain = seconds(30 * time.Second)
	flags.StringVar(&f.host, "host", "127.0.0.1", "address to listen at; 0.0.0.0 for all networks")
	flags.IntVar(&f.port, "port", 1919, "port to listen at; 0 for any free one")
	flags.Var(&f.drain, "drain-timeout", "how long running requests may take to end after SIGTERM")
	flags.Var(&f.timeout, "request-timeout", "how long a request may take, its answer included; 0: no limit")
	flags.IntVar(&f.tokenizers, "num-tokenizer", 0, "no effect: each request is encoded on its own thread")
	flags.BoolVar(&f.shell, "shell-mode", false, "chat in the terminal instead of serving")
	flags.StringVar(&f.modelName, "served-model-name", "", "what the API calls the model (default: the name given as --model-path)")
	flags.BoolVar(&f.strictModel, "strict-model", false, "refuse requests for a model of another name; else any name is served")
	flags.IntVar(&f.maxQueued, "max-queued-requests", 0, "requests that may wait; more are refused with status 503; 0: no limit")
	flags.StringVar(&f.toolParser, "tool-call-parser", "", "how the model writes calls of tools, which chats then give as tool_calls: "+strings.Join(chatparse.ToolFormats, ", ")+", or auto, by the chat template (default: they stay in the content)")
	flags.StringVar(&f.reasoningParser, "reasoning-parser", "", "how the model writes its reasoning, which chats then give as reasoning_content: "+strings.Join(chatparse.ReasoningFormats, ", ")+", or auto (default: it stays in the content)")
	flags.BoolVar(&f.enableMetrics, "enable-metrics", true, "no effect: /metrics is always there")
	flags.StringVar(&f.otlp, "otlp-traces-endpoint", "", "URL of an OpenTelemetry collector (OTLP over HTTP, such as http://127.0.0.1:4318) that gets a trace of each request")
	flags.StringVar(&f.profileDir, "profile-dir", "", "where /start_profile writes (default: the system's folder for temporary files)")
}

func (f *serveFlags) registerAccess(flags *pflag.FlagSet) {
	flags.StringVar(&f.apiKey, "api-key", "", "key that requests must bring as Authorization: Bearer KEY (default: $"+apiKeyVariable+", else none)")
	flags.StringVar(&f.corsOrigin, "cors-origin", "", "origin whose web pages may use the API; * for all (default: none)")
	flags.StringVar(&f.certFile, "ssl-certfile", "", "PEM file of the certificate (and its chain) to serve HTTPS with; needs --ssl-keyfile")
	flags.StringVar(&f.keyFile, "ssl-keyfile", "", "PEM file of its key")
}

func (f *serveFlags) check() error {
	switch {
	case f.port < 0 || f.port > 65535:
		return usageErrorf("--port must be 0 (any free one) to 65535, got %d", f.port)
	case f.tokenizers < 0:
		return usageErrorf("--num-tokenizer must be at least 0, got %d", f.tokenizers)
	case f.maxQueued < 0:
		return usageErrorf("--max-queued-requests must be 0 (no limit) or more, got %d", f.maxQueued)
	case (f.certFile == "") != (f.keyFile == ""):
		return usageErrorf("--ssl-certfile and --ssl-keyfile go together")
	}
	if err := chatparse.CheckToolFormat(f.toolParser); err != nil {
		return usageErrorf("--tool-call-parser %v", err)
	}
	if err := chatparse.CheckReasoningFormat(f.reasoningParser); err != nil {
		return usageErrorf("--reasoning-parser %v", err)
	}
	return f.engine.check()
}

// serve claims the port first: a clash must not come after minutes of loading.
func (p *program) serve(ctx context.Context, f *serveFlags) error {
	log := f.engine.logger(p.stderr)
	l, err := server.Listen(ctx, f.host, f.port)
	if err != nil {
		return err
	}
	s := server.New(f.config(log))
	return s.Run(ctx, l, func(ctx context.Context) (server.Engine, error) {
		return p.engines.New(ctx, f.engine.config(log))
	})
}

func (f *serveFlags) config(log *slog.Logger) server.Config {
	key := f.apiKey
	if key == "" {
		key = os.Getenv(apiKeyVariable)
	}
	return server.Config{
		DrainTimeout: time.Duration(f.drain), Logger: log, ModelName: f.modelName, StrictModel: f.strictModel, APIKey: key,
		CORSOrigin: f.corsOrigin, MaxRunning: int(f.engine.running), MaxQueued: f.maxQueued, Version: Version,
		RequestTimeout: time.Duration(f.timeout), CertFile: f.certFile, KeyFile: f.keyFile,
		TracesEndpoint: f.otlp, ProfileDir: f.profileDir, Flags: f.chosen,
		ToolCallParser: f.toolParser, ReasoningParser: f.reasoningParser,
	}
}

// chosen returns the flags whose values are not the default, but for the key.
func chosen(flags *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		if value := f.Value.String(); value != f.DefValue && f.Name != "api-key" {
			values[f.Name] = value
		}
	})
	return values
}

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/lora"
	"github.com/minisgl/minisgl/bench/internal/metrics"
	"github.com/minisgl/minisgl/bench/internal/program"
)

// Options are the settings of a benchmark: sglang's flags, and some of ours.
type Options struct {
	Backend, BaseURL, Host string
	Port                   int
	Model, ServedModelName string
	Tokenizer              string
	ReadyTimeout           int // seconds

	Load        Load
	Rate        program.Rate
	Warmup      int
	NoIgnoreEOS bool
	NoStream    bool
	Temperature float64
	TopP        float64
	extraText   string
	headers     []string
	loras       lora.Adapters
	logprobs    logprobOptions

	Dataset datasetOptions
	profile profileOptions

	Flush        bool
	FlushTimeout float64 // seconds
	CacheReport  bool
	goodput      []string
	MaxErrorRate float64

	Timeout, IdleTimeout time.Duration
	NewConnections       bool
	Dial                 func(ctx context.Context, network, addr string) (net.Conn, error) // nil: over the network
	NoRetokenize         bool
	Quiet, PrintRequests bool
	Tag                  string

	backend backend
	base    string
	slos    []metrics.SLO
	extra   map[string]json.RawMessage
	header  map[string]string
	rateSet bool
}

// Load is what a run offers.
type Load struct {
	Rate           float64 // requests per second; +Inf for all at once
	MaxConcurrency int     // 0: no limit
	NumPrompts     int
	Seed           uint32
}

type profileOptions struct {
	on         bool
	activities []string
	steps      int
	startStep  int
	byStage    bool
	outputDir  string
	prefix     string
}

type datasetOptions struct {
	name, path      string
	random          dataset.RandomShape
	prefix          dataset.PrefixShape
	turns           int
	distribution    string
	routingKey      bool
	shareGPTOutput  int
	shareGPTContext int
	promptSuffix    string
	template        bool
	tokenizePrompt  bool
	vocab           int
	slowdown        float64
	traceTimes      bool
	workload        string
	rounds          int
	from, to        time.Duration
}

// Define adds the flags to f.
func (o *Options) Define(f *pflag.FlagSet) {
	o.Rate = program.Infinite
	f.StringVar(&o.Backend, "backend", "sglang", "kind of server: sglang(-native), sglang-oai(-chat), vllm(-chat), openai(-chat), lmdeploy(-chat), trt, minisgl")
	f.StringVar(&o.BaseURL, "base-url", "", "address of the server, instead of --host and --port")
	f.StringVar(&o.Host, "host", "127.0.0.1", "host of the server")
	f.IntVar(&o.Port, "port", 0, "port of the server (default: that of the backend)")
	f.IntVar(&o.ReadyTimeout, "ready-check-timeout-sec", 60, "seconds to wait for the server; 0 does not wait")
	f.StringVar(&o.Model, "model", "", "model to ask for (default: the first the server lists); if a directory, its tokenizer is used")
	f.StringVar(&o.ServedModelName, "served-model-name", "", "name of the model in requests, if not --model")
	f.StringVar(&o.Tokenizer, "tokenizer", "", "directory or cached name of a tokenizer (default: --model, else the server's /tokenize, else none)")
	f.IntVar(&o.Load.NumPrompts, "num-prompts", 1000, "requests to send")
	f.Var(&o.Rate, "request-rate", "requests per second, as a Poisson process; inf sends all at once")
	f.IntVar(&o.Load.MaxConcurrency, "max-concurrency", 0, "most requests in flight; 0 means no limit")
	f.IntVar(&o.Warmup, "warmup-requests", 1, "requests before the measurement, with other prompts")
	f.Uint32Var(&o.Load.Seed, "seed", 42, "seed of lengths, prompts and arrivals; the same as in sglang's client gives the same")
	o.Dataset.define(f)
	f.BoolVar(&o.NoStream, "disable-stream", false, "ask for answers in one piece; then TTFT, TPOT and ITL are unknown")
	f.BoolVar(&o.NoIgnoreEOS, "disable-ignore-eos", false, "let the model end answers early")
	f.Float64Var(&o.Temperature, "temperature", 0, "sampling temperature")
	f.Float64Var(&o.TopP, "top-p", 1, "sampling nucleus")
	f.StringVar(&o.extraText, "extra-request-body", "", "JSON object to add to each request")
	f.StringArrayVar(&o.headers, "header", nil, "header of each request, KEY=VALUE; several may follow")
	o.loras.Define(f)
	o.logprobs.define(f)
	f.BoolVar(&o.PrintRequests, "print-requests", false, "print a line for each request as it ends")
	f.BoolVar(&o.Flush, "flush-cache", false, "empty the server's prefix cache before the measurement")
	f.Float64Var(&o.FlushTimeout, "flush-cache-timeout", 60, "seconds that emptying may take")
	f.BoolVar(&o.CacheReport, "cache-report", false, "add the prefix cache's hits to the table")
	f.StringArrayVar(&o.goodput, "goodput", nil, "limits in ms that a good request meets: ttft:MS tpot:MS e2el:MS")
	f.Float64Var(&o.MaxErrorRate, "max-error-rate", 1, "exit with 1 if a larger share of the requests fails; all failed always does")
	o.profile.define(f)
	f.DurationVar(&o.Timeout, "timeout", 6*time.Hour, "time limit of a request; 0 means none")
	f.DurationVar(&o.IdleTimeout, "idle-timeout", 10*time.Minute, "time limit between two parts of an answer, and before the first; 0 means none")
	f.BoolVar(&o.NewConnections, "new-connections", false, "open a connection for each request, as sglang's client does")
	f.BoolVar(&o.NoRetokenize, "disable-retokenize", false, "do not count the tokens of the answers' text again")
	f.BoolVar(&o.Quiet, "disable-tqdm", false, "no progress bar and no messages but errors")
	f.BoolVar(&o.Quiet, "quiet", false, "the same")
	f.StringVar(&o.Tag, "tag", "", "name of the run, for the output file")
	f.SetNormalizeFunc(program.OldNames)
}

func (d *datasetOptions) define(f *pflag.FlagSet) {
	f.StringVar(&d.name, "dataset-name", "sharegpt", "random-ids, random, sharegpt, custom, openai, generated-shared-prefix, multi-turn, hellaswag, mmlu, mooncake, qwen (bailian), burstgpt or requests")
	f.StringVar(&d.path, "dataset-path", "", "file of the dataset; only random-ids, generated-shared-prefix and multi-turn need none")
	f.IntVar(&d.random.InputLen, "random-input-len", 1024, "tokens of a random prompt, at most")
	f.IntVar(&d.random.OutputLen, "random-output-len", 1024, "tokens of its answer, at most")
	f.Float64Var(&d.random.RangeRatio, "random-range-ratio", 0, "lengths are uniform from this share of the full one (0: from 1; 1: exact)")
	f.IntVar(&d.turns, "num-turns", 0, "multi-turn: most turns of each conversation; 0: all of the file's, or 3 of the random lengths without a file")
	f.IntVar(&d.shareGPTOutput, "sharegpt-output-len", 0, "tokens of every answer (default: as the dataset says)")
	f.IntVar(&d.shareGPTContext, "sharegpt-context-len", 0, "skip conversations longer than this; 0 skips none")
	f.StringVar(&d.promptSuffix, "prompt-suffix", "", "text behind each prompt")
	f.BoolVar(&d.template, "apply-chat-template", false, "render prompts with the tokenizer's chat template")
	f.BoolVar(&d.tokenizePrompt, "tokenize-prompt", false, "send token ids instead of text (not to chat APIs)")
	f.IntVar(&d.vocab, "vocab-size", dataset.DefaultVocab, "ids to draw prompts from when there is no tokenizer here")
	f.IntVar(&d.prefix.Groups, "gsp-num-groups", 64, "generated-shared-prefix: groups of prompts with one system prompt")
	f.IntVar(&d.prefix.PerGroup, "gsp-prompts-per-group", 16, "prompts of each group")
	f.IntVar(&d.prefix.SystemLen, "gsp-system-prompt-len", 2048, "tokens of a system prompt")
	f.IntVar(&d.prefix.QuestionLen, "gsp-question-len", 128, "tokens behind it")
	f.IntVar(&d.prefix.OutputLen, "gsp-output-len", 256, "tokens of an answer")
	f.Float64Var(&d.prefix.RangeRatio, "gsp-range-ratio", 1, "lengths are uniform from this share of the full one")
	f.IntVar(&d.prefix.Turns, "gsp-num-turns", 1, "turns of each prompt; with more than 1 it is a conversation, as in multi-turn")
	f.BoolVar(&d.prefix.Fast, "gsp-fast-prepare", false, "do not count the tokens of prompts")
	f.BoolVar(&d.prefix.Ordered, "gsp-ordered", false, "do not shuffle the prompts")
	f.BoolVar(&d.routingKey, "gsp-send-routing-key", false, "send a header that names the group")
	f.StringVar(&d.distribution, "gsp-group-distribution", "uniform", "uniform or zipf")
	f.Float64Var(&d.prefix.Zipf, "gsp-zipf-alpha", 0, "exponent of zipf")
	f.StringVar(&d.workload, "mooncake-workload", "conversation", "name of the trace that --dataset-path holds")
	f.Float64Var(&d.slowdown, "mooncake-slowdown-factor", 1, "of every trace: stretch the time between requests")
	f.IntVar(&d.rounds, "mooncake-num-rounds", 1, "of mooncake: rounds of each session; with more than 1 it is a conversation, as in multi-turn")
	f.BoolVar(&d.traceTimes, "use-trace-timestamps", false, "send at the recorded times (a trace without --request-rate does)")
}

func (p *profileOptions) define(f *pflag.FlagSet) {
	f.BoolVar(&p.on, "profile", false, "have the server profile the measurement (/start_profile, /stop_profile)")
	f.StringArrayVar(&p.activities, "profile-activities", []string{"CPU", "GPU"}, "what to profile; several may follow")
	f.IntVar(&p.steps, "profile-num-steps", 0, "stop after so many steps")
	f.IntVar(&p.startStep, "profile-start-step", 0, "start after so many steps")
	f.BoolVar(&p.byStage, "profile-by-stage", false, "profile prefill and decode apart")
	f.StringVar(&p.outputDir, "profile-output-dir", "", "where the server puts the profile")
	f.StringVar(&p.prefix, "profile-prefix", "", "start of its name")
}

// Lists are the flags that take several values in a row.
var Lists = []string{"header", "goodput", lora.Flag, "profile-activities", "token-ids-logprob"}

// Check completes the options, or names the flag that cannot be used.
func (o *Options) Check(f *pflag.FlagSet) error {
	o.rateSet = f.Changed("request-rate")
	o.Load.Rate = float64(o.Rate)
	if err := program.CheckBounds(o.bounds()); err != nil {
		return err
	}
	for flag, v := range map[string]float64{
		"random-range-ratio": o.Dataset.random.RangeRatio, "gsp-range-ratio": o.Dataset.prefix.RangeRatio, "max-error-rate": o.MaxErrorRate, "top-p": o.TopP,
	} {
		if !(v >= 0 && v <= 1) {
			return fmt.Errorf("invalid argument \"%v\" for \"--%s\" flag: want 0 to 1", v, flag)
		}
	}
	for flag, v := range map[string]float64{"temperature": o.Temperature, "flush-cache-timeout": o.FlushTimeout, "timeout": float64(o.Timeout), "idle-timeout": float64(o.IdleTimeout)} {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("invalid argument \"%v\" for \"--%s\" flag: want 0 or more", v, flag)
		}
	}
	var err error
	if o.backend, err = findBackend(o.Backend); err != nil {
		return err
	}
	if o.slos, err = metrics.ParseSLOs(o.goodput); err != nil {
		return fmt.Errorf("--goodput: %w", err)
	}
	if err := o.parse(); err != nil {
		return err
	}
	if o.NoStream && o.backend.api == loadgen.ChatSocket {
		return fmt.Errorf("--disable-stream: the backend %s always streams", o.Backend)
	}
	return o.Dataset.check(o.backend.api)
}

const maxTurns = 10_000 // of a conversation

func (o *Options) bounds() []program.Bound {
	d := &o.Dataset
	return []program.Bound{
		{Flag: "port", Value: o.Port, Low: 0, Top: 65535},
		{Flag: "ready-check-timeout-sec", Value: o.ReadyTimeout, Low: 0, Top: 1_000_000},
		{Flag: "num-prompts", Value: o.Load.NumPrompts, Low: 1, Top: program.MaxRequests},
		{Flag: "max-concurrency", Value: o.Load.MaxConcurrency, Low: 0, Top: program.MaxRequests},
		{Flag: "warmup-requests", Value: o.Warmup, Low: 0, Top: program.MaxRequests},
		{Flag: "random-input-len", Value: d.random.InputLen, Low: 1, Top: program.MaxTokens},
		{Flag: "random-output-len", Value: d.random.OutputLen, Low: 1, Top: program.MaxTokens},
		{Flag: "sharegpt-output-len", Value: d.shareGPTOutput, Low: 0, Top: program.MaxTokens},
		{Flag: "sharegpt-context-len", Value: d.shareGPTContext, Low: 0, Top: program.MaxTokens},
		{Flag: "vocab-size", Value: d.vocab, Low: 1, Top: 1 << 24},
		{Flag: "gsp-num-groups", Value: d.prefix.Groups, Low: 1, Top: program.MaxRequests},
		{Flag: "gsp-prompts-per-group", Value: d.prefix.PerGroup, Low: 1, Top: program.MaxRequests},
		{Flag: "gsp-system-prompt-len", Value: d.prefix.SystemLen, Low: 1, Top: program.MaxTokens},
		{Flag: "gsp-question-len", Value: d.prefix.QuestionLen, Low: 1, Top: program.MaxTokens},
		{Flag: "gsp-output-len", Value: d.prefix.OutputLen, Low: 1, Top: program.MaxTokens},
		{Flag: "gsp-num-turns", Value: d.prefix.Turns, Low: 1, Top: maxTurns},
		{Flag: "top-logprobs-num", Value: o.logprobs.top, Low: 0, Top: 1000},
		{Flag: "logprob-start-len", Value: o.logprobs.start, Low: -1, Top: program.MaxTokens},
		{Flag: "num-turns", Value: d.turns, Low: 0, Top: maxTurns},
		{Flag: "mooncake-num-rounds", Value: d.rounds, Low: 1, Top: maxTurns},
	}
}

// parse reads the flags that are more than a number.
func (o *Options) parse() error {
	o.extra = nil
	if o.extraText != "" {
		if err := json.Unmarshal([]byte(o.extraText), &o.extra); err != nil {
			return fmt.Errorf("--extra-request-body: want a JSON object: %w", err)
		}
	}
	var err error
	if o.extra, err = o.logprobs.addTo(o.extra, o.backend.api); err != nil {
		return err
	}
	o.header = map[string]string{}
	for _, text := range o.headers {
		at := strings.IndexAny(text, "=:")
		if at < 1 {
			return fmt.Errorf("--header: %q: want KEY=VALUE", text)
		}
		o.header[strings.TrimSpace(text[:at])] = strings.TrimSpace(text[at+1:])
	}
	if err := o.loras.Check(); err != nil {
		return err
	}
	return o.address()
}

func (o *Options) address() error {
	url := o.BaseURL
	if url == "" {
		port := o.Port
		if port == 0 {
			port = o.backend.port
		}
		url = "http://" + net.JoinHostPort(o.Host, strconv.Itoa(port))
	}
	base, err := loadgen.ParseBase(url)
	if err != nil {
		return fmt.Errorf("--base-url: %s", strings.TrimPrefix(err.Error(), "loadgen: "))
	}
	o.base = base
	return nil
}

// conversations tells whether requests of the dataset are turns.
func (d *datasetOptions) conversations() bool {
	return d.name == "multi-turn" || d.name == "generated-shared-prefix" && d.prefix.Turns > 1 || d.name == "mooncake" && d.rounds > 1
}

// chained tells whether a row says which one it waits for.
func (d *datasetOptions) chained() bool {
	_, err := dataset.ParseTraceKind(d.name)
	return err == nil || d.conversations()
}

func (d *datasetOptions) check(api loadgen.API) error {
	switch d.name {
	case "random-ids", "random", "sharegpt", "custom", "openai", "generated-shared-prefix", "multi-turn", "hellaswag", "mmlu":
		if d.traceTimes {
			return fmt.Errorf("--use-trace-timestamps: the dataset %s has no times", d.name)
		}
	default:
		if _, err := dataset.ParseTraceKind(d.name); err != nil {
			return fmt.Errorf("invalid argument %q for \"--dataset-name\" flag: want random-ids, random, sharegpt, custom, openai, generated-shared-prefix, multi-turn, hellaswag, mmlu, mooncake, qwen, bailian, burstgpt or requests", d.name)
		}
		if !(d.slowdown > 0) || math.IsInf(d.slowdown, 0) {
			return fmt.Errorf("--mooncake-slowdown-factor is %v: want more than 0", d.slowdown)
		}
	}
	switch {
	case d.tokenizePrompt && api != loadgen.Generate && api != loadgen.Completions:
		return fmt.Errorf("--tokenize-prompt: this backend takes no token ids; sglang and the completions backends do")
	case (d.name == "openai" || d.conversations()) && !api.Chats():
		return fmt.Errorf("--dataset-name %s holds chats: use a backend whose name ends in -chat", d.name)
	case d.routingKey && api == loadgen.ChatSocket:
		return fmt.Errorf("--gsp-send-routing-key: requests on a WebSocket have no headers")
	case d.rounds > 1 && d.name != "mooncake":
		return fmt.Errorf("--mooncake-num-rounds goes with --dataset-name mooncake")
	case d.distribution != "uniform" && d.distribution != "zipf":
		return fmt.Errorf("--gsp-group-distribution: %q: want uniform or zipf", d.distribution)
	case (d.distribution == "zipf") != (d.prefix.Zipf != 0):
		return fmt.Errorf("--gsp-group-distribution zipf and --gsp-zipf-alpha go together")
	}
	return nil
}

// Address returns the address of the server, once the options are checked.
func (o *Options) Address() string { return o.base }

// DatasetName returns the name of the dataset.
func (o *Options) DatasetName() string { return o.Dataset.name }

// For returns checked options for another server: its address and, if not "",
// its kind. f holds the flags that o was defined on.
func (o *Options) For(f *pflag.FlagSet, url, backend string) (*Options, error) {
	other := *o
	other.BaseURL = url
	if backend != "" {
		other.Backend = backend
	}
	return &other, other.Check(f)
}

// Replay makes the dataset a window of a recorded load, with the time between
// requests stretched by scale; a to of 0 is the end.
func (o *Options) Replay(kind dataset.TraceKind, path string, scale float64, from, to time.Duration) {
	d := &o.Dataset
	d.name, d.path, d.slowdown, d.from, d.to, d.traceTimes = string(kind), path, scale, from, to, true
}

// Package offline measures how fast the engine works through a list of requests,
// without a server, and prints sglang's offline throughput table.
package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/engine"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/report"
	"github.com/minisgl/minisgl/bench/internal/tokens"
	"github.com/minisgl/minisgl/go/llm"
)

const examples = `  # 64 random prompts of up to 128 tokens, answers of up to 64
  go run ./bench/offline --num-prompts 64 --random-input 128 --random-output 64

  # the requests of mini-sglang's and nano-vllm's benchmark: 133,966 tokens
  go run ./bench/offline --dataset-name mini --num-prompts 256 --random-input 1024 --random-output 1024 --seed 0

  # conversations from a file
  go run ./bench/offline --dataset-name sharegpt --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --num-prompts 100`

const description = `Gives the engine all requests at once, in this process, and measures how long it
takes: the highest throughput, with no server in between. The table is that of
sglang's offline benchmark; the seed gives the same requests as there.

The default dataset is random-ids, which needs no file.`

// Program is the benchmark as a program.
var Program = program.Program{Name: "offline", Command: newCommand}

type config struct {
	engine        llm.Config
	dataset, path string
	n             int
	random        dataset.RandomShape
	prefix        dataset.PrefixShape
	shareGPT      int
	context       int
	seed          uint32
	keepEOS       bool
	bandwidth     float64
	skipWarmup    bool
	resultFile    string
	quiet         bool
}

func newCommand() *cobra.Command {
	c := &config{}
	return program.Spec{
		Name: "offline", Short: "The engine's throughput without a server", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.StringVar(&c.dataset, "dataset-name", "random-ids", "random-ids, random, sharegpt, generated-shared-prefix, or mini (mini-sglang's own)")
	f.StringVar(&c.path, "dataset-path", "", "ShareGPT file of random and sharegpt")
	f.IntVar(&c.n, "num-prompts", 64, "requests")
	f.IntVar(&c.random.InputLen, "random-input-len", 256, "tokens of a random prompt, at most")
	f.IntVar(&c.random.OutputLen, "random-output-len", 128, "tokens of its answer, at most")
	f.Float64Var(&c.random.RangeRatio, "random-range-ratio", 0, "lengths are uniform from this share of the full one")
	f.IntVar(&c.shareGPT, "sharegpt-output-len", 0, "tokens of every answer; 0: as the dataset says")
	f.IntVar(&c.context, "sharegpt-context-len", 0, "skip conversations longer than this; 0 skips none")
	f.IntVar(&c.prefix.Groups, "gsp-num-groups", 8, "generated-shared-prefix: groups of prompts with one system prompt")
	f.IntVar(&c.prefix.PerGroup, "gsp-prompts-per-group", 8, "prompts of each group")
	f.IntVar(&c.prefix.SystemLen, "gsp-system-prompt-len", 512, "tokens of a system prompt")
	f.IntVar(&c.prefix.QuestionLen, "gsp-question-len", 64, "tokens behind it")
	f.IntVar(&c.prefix.OutputLen, "gsp-output-len", 64, "tokens of an answer")
	f.Float64Var(&c.prefix.RangeRatio, "gsp-range-ratio", 1, "lengths are uniform from this share of the full one")
	f.Uint32Var(&c.seed, "seed", 42, "seed of lengths and prompts")
	f.BoolVar(&c.keepEOS, "disable-ignore-eos", false, "let the model end answers early")
	f.BoolVar(&c.skipWarmup, "skip-warmup", false, "do not warm up")
	f.Float64Var(&c.bandwidth, "memory-bandwidth", 0, "GB/s that the memory can give, to compare what decoding reads with; 0: don't")
	f.StringVar(&c.resultFile, "result-filename", "", "append the result to this file, as a line of JSON")
	f.BoolVar(&c.quiet, "quiet", false, "no progress bar and no messages but errors")
	engine.Define(f, &c.engine)
	f.SetNormalizeFunc(program.OldNames)
}

func (c *config) check(*pflag.FlagSet) error {
	switch c.dataset {
	case "random-ids", "random", "sharegpt", "generated-shared-prefix", "mini":
	default:
		return fmt.Errorf("--dataset-name %q: want random-ids, random, sharegpt, generated-shared-prefix or mini", c.dataset)
	}
	for flag, ratio := range map[string]float64{"random-range-ratio": c.random.RangeRatio, "gsp-range-ratio": c.prefix.RangeRatio} {
		if !(ratio >= 0 && ratio <= 1) {
			return fmt.Errorf("--%s is %v: want 0 to 1", flag, ratio)
		}
	}
	if !(c.bandwidth >= 0) {
		return fmt.Errorf("--memory-bandwidth is %v: want 0 or more", c.bandwidth)
	}
	return program.CheckBounds([]program.Bound{
		{Flag: "num-prompts", Value: c.n, Low: 1, Top: program.MaxRequests},
		{Flag: "random-input-len", Value: c.random.InputLen, Low: 1, Top: program.MaxTokens},
		{Flag: "random-output-len", Value: c.random.OutputLen, Low: 1, Top: program.MaxTokens},
		{Flag: "sharegpt-output-len", Value: c.shareGPT, Low: 0, Top: program.MaxTokens},
		{Flag: "sharegpt-context-len", Value: c.context, Low: 0, Top: program.MaxTokens},
		{Flag: "gsp-system-prompt-len", Value: c.prefix.SystemLen, Low: 1, Top: program.MaxTokens},
		{Flag: "gsp-question-len", Value: c.prefix.QuestionLen, Low: 1, Top: program.MaxTokens},
		{Flag: "gsp-output-len", Value: c.prefix.OutputLen, Low: 1, Top: program.MaxTokens},
	})
}

func (c *config) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	out, err := program.OpenOutput("result-filename", c.resultFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	eng, err := engine.Open(ctx, c.engine)
	if err != nil {
		return err
	}
	defer eng.Close()
	requests, err := c.requests(eng)
	if err != nil {
		return err
	}
	if !c.skipWarmup {
		if err := c.warmUp(ctx, eng, min(warmups, len(requests))); err != nil {
			return err
		}
	}
	r, err := c.measure(ctx, eng, requests, stderr)
	if err != nil {
		return err
	}
	if err := report.WriteOffline(stdout, r); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// requests makes the rows of the dataset, as ids where the dataset draws ids.
func (c *config) requests(eng *llm.LLM) ([]llm.Request, error) {
	tok, err := tokens.FromEngine(eng.Tokenizer())
	if err != nil {
		return nil, err
	}
	src := dataset.NewSource(c.path, c.n, c.seed)
	src.Tokenizer, src.OutputLen, src.ContextLen = tok, c.shareGPT, c.context
	if src.ContextLen == 0 {
		src.ContextLen = eng.Info().MaxSeqLen
	}
	src.AsIDs = c.dataset != "sharegpt"
	var rows []dataset.Row
	switch c.dataset {
	case "random-ids":
		rows, err = src.RandomIDs(c.random)
	case "random":
		rows, err = src.Random(c.random)
	case "sharegpt":
		rows, err = src.ShareGPT()
	case "mini":
		rows, err = src.Mini(c.random)
	default:
		rows, err = src.SharedPrefix(c.prefix)
	}
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("offline: the dataset %s has no usable request in %s", c.dataset, c.path)
	}
	requests := make([]llm.Request, len(rows))
	for i, row := range rows {
		requests[i] = llm.Request{Text: row.Text, TokenIDs: row.IDs, Params: c.params(row.OutputLen)}
	}
	return requests, nil
}

func (c *config) params(output int) llm.SamplingParams {
	p := engine.Greedy(output)
	p.IgnoreEOS = !c.keepEOS
	return p
}

const (
	warmups                   = 16
	warmupInput, warmupOutput = 256, 16
)

// warmUp runs requests of ids that are not measured.
func (c *config) warmUp(ctx context.Context, eng *llm.LLM, n int) error {
	info := eng.Info()
	src := dataset.NewSource("", n, c.seed+1)
	src.AsIDs, src.Vocab = true, info.VocabSize
	rows, err := src.RandomIDs(dataset.RandomShape{InputLen: max(min(warmupInput, info.MaxSeqLen/2), 1), OutputLen: 1, RangeRatio: 1})
	if err != nil {
		return err
	}
	requests := make([]llm.Request, n)
	for i, row := range rows {
		requests[i] = llm.Request{TokenIDs: row.IDs, Params: c.params(min(warmupOutput, max(info.MaxSeqLen/2, 1)))}
	}
	_, err = eng.Generate(ctx, requests, nil)
	return program.Interrupted(ctx, err)
}

func (c *config) measure(ctx context.Context, eng *llm.LLM, requests []llm.Request, stderr io.Writer) (*report.Offline, error) {
	step, stop := program.Progress(stderr, len(requests), "Requests", c.quiet)
	defer stop()
	var pace pace
	done := 0
	begin := time.Now()
	outputs, err := eng.Generate(ctx, requests, func(p llm.Progress) {
		for ; done < p.DoneRequests; done++ {
			step()
		}
		pace.add(time.Since(begin), p.CompletionTokens)
	})
	took := time.Since(begin)
	if err != nil {
		return nil, program.Interrupted(ctx, err)
	}
	r := &report.Offline{Backend: "engine", Seconds: took.Seconds(), Bandwidth: c.bandwidth}
	for _, o := range outputs {
		if o.Finish == llm.FinishStop || o.Finish == llm.FinishLength {
			r.Successful++
		}
		r.KVBytes += float64(eng.Info().TokenBytes) * positions(o.Usage.PromptTokens, o.Usage.CompletionTokens)
		r.InputTokens += o.Usage.PromptTokens
		r.OutputTokens += o.Usage.CompletionTokens
	}
	pace.add(took, r.OutputTokens)
	r.LastGen = pace.last()
	r.Complete()
	return r, nil
}

// positions is how many positions of the KV cache decoding reads for a request: those before
// each token but the first, which comes with the prompt.
func positions(prompt, output int) float64 {
	n := float64(max(output-1, 0))
	return n*float64(prompt) + n*(n+1)/2
}

// pace remembers how many tokens there were at which time.
type pace struct {
	at    []time.Duration
	count []int
}

func (p *pace) add(at time.Duration, count int) {
	p.at, p.count = append(p.at, at), append(p.count, count)
}

// last returns the tokens per second of the last second, or of all of a shorter run.
func (p *pace) last() float64 {
	end := len(p.at) - 1
	at, count := time.Duration(0), 0
	for i := 0; i < end && p.at[i] <= p.at[end]-time.Second; i++ {
		at, count = p.at[i], p.count[i]
	}
	if p.at[end] <= at {
		return 0
	}
	return float64(p.count[end]-count) / (p.at[end] - at).Seconds()
}

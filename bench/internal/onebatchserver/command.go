// Package onebatchserver measures one batch at a time at a server: all prompts in
// one request. The flags and the output are those of sglang's benchmark.
package onebatchserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/lora"
	"github.com/minisgl/minisgl/bench/internal/program"
)

const examples = `  # batches of 1, 4 and 16 prompts of 256 tokens, with a table at the end
  go run ./bench/onebatchserver --batch-size 1 4 16 --input-len 256 --output-len 32 --show-report

  # the same with half of each prompt in the server's prefix cache
  go run ./bench/onebatchserver --batch-size 8 --input-len 512 --cache-hit-rate 0.5

  # conversations that may end early; the steady-state figures are those to read
  go run ./bench/onebatchserver --batch-size 16 --dataset-name sharegpt --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json \
      --output-len 256 --disable-ignore-eos`

const description = `Sends one batch at a time to a running server, all prompts in one request to
/generate, and measures when the last prompt has its first token and how fast the
tokens after that come. Several batch sizes or lengths are all combined. The
server's prefix cache is emptied before each batch.

Output throughput counts the tokens after the last first token and the time they
took, so it is not raised by tokens that came with the prefill; a latency ends at
the last token. Flags, output and result file are those of sglang's
one_batch_server; the default dataset is random-ids, which needs no file.

Exit codes: 0 done, 1 a batch failed or no server, 2 wrong usage, 130 interrupted.`

// Program is the benchmark as a program.
var Program = program.Program{Name: "onebatchserver", Command: newCommand, Lists: []string{"batch-size", "input-len", "output-len", lora.Flag}}

type config struct {
	base, backend, model  string
	name                  string
	batches, inputs, outs []int
	lensText              string
	lens                  []int
	dataset, path         string
	prefix                dataset.PrefixShape
	promptFile, tokenizer string
	template              bool
	vocab                 int
	temperature           float64
	keepEOS, logprobs     bool
	interval              int
	hitRate               float64
	parallel              bool
	adapters              lora.Adapters
	skipWarmup            bool
	skipCapacity          bool
	multiBatch            bool
	report                bool
	hourCost              float64
	resultFile            string
	seed                  uint32
	dial                  func(ctx context.Context, network, addr string) (net.Conn, error) // nil: over the network
}

func newCommand() *cobra.Command { return (&config{}).command() }

func (c *config) command() *cobra.Command {
	return program.Spec{
		Name: "onebatchserver", Short: "One batch at a time at a server: time of its prefill and speed of its decoding", Long: description, Examples: examples,
		Define: c.define, Check: c.check, Run: c.run,
	}.Command()
}

func (c *config) define(f *pflag.FlagSet) {
	f.StringVar(&c.base, "base-url", "http://127.0.0.1:1919", "address of the server")
	f.StringVar(&c.backend, "backend", "sglang", "kind of server: sglang (also this project's) or vllm")
	f.StringVar(&c.model, "model", "", "model to ask vllm for (default: the first it lists)")
	f.StringVar(&c.name, "run-name", "default", "name of the run in the result file")
	f.IntSliceVar(&c.batches, "batch-size", []int{1}, "prompts of the batch; several may follow")
	f.IntSliceVar(&c.inputs, "input-len", []int{1024}, "tokens of each prompt; several may follow")
	f.StringVar(&c.lensText, "input-len-list", "", "lengths of a batch's prompts in turn, such as 128,1024, instead of --input-len")
	f.IntSliceVar(&c.outs, "output-len", []int{16}, "tokens of each answer; several may follow")
	f.StringVar(&c.dataset, "dataset-name", "random-ids", "random-ids, random, generated-shared-prefix, sharegpt or custom")
	f.StringVar(&c.path, "dataset-path", "", "file of the dataset; random-ids and generated-shared-prefix need none")
	f.IntVar(&c.prefix.Groups, "gsp-num-groups", 1, "generated-shared-prefix: groups of prompts with one system prompt")
	f.IntVar(&c.prefix.SystemLen, "gsp-system-prompt-len", 2048, "tokens of a system prompt")
	f.IntVar(&c.prefix.QuestionLen, "gsp-question-len", 128, "tokens behind it")
	f.IntVar(&c.prefix.OutputLen, "gsp-output-len", 256, "tokens of an answer, instead of --output-len")
	f.StringVar(&c.promptFile, "fixed-prompt-file", "", "the text of this file is every prompt")
	f.StringVar(&c.tokenizer, "local-tokenizer-path", "", "directory or cached name of a tokenizer (default: the one the server names, else its /tokenize)")
	f.BoolVar(&c.template, "apply-chat-template", false, "render text prompts with the tokenizer's chat template")
	f.IntVar(&c.vocab, "vocab-size", dataset.DefaultVocab, "ids to draw prompts from when there is no tokenizer here")
	f.Float64Var(&c.temperature, "temperature", 0, "sampling temperature")
	f.BoolVar(&c.keepEOS, "disable-ignore-eos", false, "let the model end answers early, and print the steady state before the first does")
	f.BoolVar(&c.logprobs, "return-logprob", false, "ask for log probabilities")
	f.IntVar(&c.interval, "client-stream-interval", 1, "tokens that the server may put into one chunk")
	f.Float64Var(&c.hitRate, "cache-hit-rate", 0, "share of each prompt to put into the server's prefix cache first")
	f.BoolVar(&c.parallel, "parallel-batch", false, "ask sglang to tokenize the batch in parallel")
	c.adapters.Define(f)
	f.BoolVar(&c.skipWarmup, "skip-warmup", false, "do not warm up")
	f.BoolVar(&c.skipCapacity, "skip-token-capacity-check", false, "send batches that the server's KV cache cannot hold at once")
	f.BoolVar(&c.multiBatch, "enable-multi-batch", false, "send more prompts than the server runs at once; then only overall_throughput tells something")
	f.BoolVar(&c.report, "show-report", false, "print a table of all batches at the end")
	f.Float64Var(&c.hourCost, "hourly-cost", 2, "dollars an hour that the server costs, for the table")
	f.StringVar(&c.resultFile, "result-filename", "result.jsonl", "append the results to this file, as lines of JSON; - for none")
	f.Uint32Var(&c.seed, "seed", 42, "seed of the prompts")
}

// Bounds of one batch.
const (
	maxBatch  = 1 << 16
	maxTokens = 1 << 26 // of all its prompts
)

func (c *config) check(*pflag.FlagSet) error {
	for flag, list := range map[string][]int{"batch-size": c.batches, "input-len": c.inputs, "output-len": c.outs} {
		if len(list) == 0 || slices.ContainsFunc(list, func(v int) bool { return v < 1 || v > program.MaxTokens }) {
			return fmt.Errorf("--%s is %v: want numbers from 1 to %d", flag, list, program.MaxTokens)
		}
	}
	if slices.Max(c.batches) > maxBatch || slices.Max(c.batches)*slices.Max(c.inputs) > maxTokens {
		return fmt.Errorf("--batch-size %d of --input-len %d: want at most %d prompts and %d tokens", slices.Max(c.batches), slices.Max(c.inputs), maxBatch, maxTokens)
	}
	if err := c.checkNumbers(); err != nil {
		return err
	}
	base, err := loadgen.ParseBase(c.base)
	if err != nil {
		return fmt.Errorf("--base-url: %s", strings.TrimPrefix(err.Error(), "loadgen: "))
	}
	c.base, c.prefix.RangeRatio = base, 1
	if err := c.parseLens(); err != nil {
		return err
	}
	return errors.Join(c.checkChoices(), c.adapters.Check())
}

func (c *config) checkNumbers() error {
	switch {
	case !(c.temperature >= 0 && c.temperature <= 1000):
		return fmt.Errorf("--temperature is %v: want 0 or more", c.temperature)
	case !(c.hitRate >= 0 && c.hitRate <= 1):
		return fmt.Errorf("--cache-hit-rate is %v: want 0 to 1", c.hitRate)
	case !(c.hourCost >= 0 && c.hourCost <= 1e9):
		return fmt.Errorf("--hourly-cost is %v: want 0 or more", c.hourCost)
	}
	return program.CheckBounds([]program.Bound{
		{Flag: "gsp-num-groups", Value: c.prefix.Groups, Low: 1, Top: maxBatch},
		{Flag: "gsp-system-prompt-len", Value: c.prefix.SystemLen, Low: 1, Top: program.MaxTokens},
		{Flag: "gsp-question-len", Value: c.prefix.QuestionLen, Low: 1, Top: program.MaxTokens},
		{Flag: "gsp-output-len", Value: c.prefix.OutputLen, Low: 1, Top: program.MaxTokens},
		{Flag: "vocab-size", Value: c.vocab, Low: 1, Top: 1 << 24},
		{Flag: "client-stream-interval", Value: c.interval, Low: 1, Top: program.MaxTokens},
	})
}

func (c *config) parseLens() error {
	if c.lensText == "" {
		return nil
	}
	for text := range strings.SplitSeq(c.lensText, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > program.MaxTokens || n*slices.Max(c.batches) > maxTokens {
			return fmt.Errorf("--input-len-list: %q is no length of a prompt, 1 to %d tokens", text, program.MaxTokens)
		}
		c.lens = append(c.lens, n)
	}
	if !strings.HasPrefix(c.dataset, "random") || c.promptFile != "" || len(c.inputs) > 1 {
		return errors.New("--input-len-list goes with random and random-ids, without --fixed-prompt-file, and takes the place of --input-len")
	}
	return nil
}

// checkChoices refuses what does not go together.
func (c *config) checkChoices() error {
	vllm := c.backend == "vllm"
	switch c.dataset {
	case "random-ids", "random", "generated-shared-prefix", "sharegpt", "custom":
	case "mmmu", "longbench_v2":
		return fmt.Errorf("--dataset-name %s is not supported: use custom with a file of its prompts", c.dataset)
	default:
		return fmt.Errorf("--dataset-name %q: want random-ids, random, generated-shared-prefix, sharegpt or custom", c.dataset)
	}
	switch {
	case !vllm && c.backend != "sglang":
		return fmt.Errorf("--backend %q: want sglang or vllm", c.backend)
	case vllm && (c.keepEOS || replay(c.dataset)):
		return errors.New("--backend vllm tells no token counts while it answers: use it without --disable-ignore-eos and recorded prompts")
	case c.keepEOS && c.interval != 1:
		return errors.New("--disable-ignore-eos needs --client-stream-interval 1, to tell when each answer ended")
	case replay(c.dataset) && (c.promptFile != "" || len(c.inputs) > 1):
		return fmt.Errorf("--dataset-name %s has prompts of its own lengths: no --fixed-prompt-file, and one --input-len at most", c.dataset)
	case c.template && c.promptFile == "" && !replay(c.dataset):
		return errors.New("--apply-chat-template needs text prompts: --fixed-prompt-file, or the dataset sharegpt or custom")
	}
	return nil
}

package onebatchserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/minisgl/minisgl/bench/internal/dataset"
	"github.com/minisgl/minisgl/bench/internal/loadgen"
	"github.com/minisgl/minisgl/bench/internal/lora"
	"github.com/minisgl/minisgl/bench/internal/program"
	"github.com/minisgl/minisgl/bench/internal/record"
	"github.com/minisgl/minisgl/bench/internal/tokens"
)

const (
	timeout                   = 10 * time.Minute // of one batch
	askWait                   = 30 * time.Second
	readyWait                 = time.Minute
	warmupInput, warmupOutput = 1024, 16
)

// bench is a server that is measured.
type bench struct {
	c        *config
	http     *loadgen.HTTP
	src      *dataset.Source
	tok      tokens.Tokenizer // nil if there is none
	adapters lora.Adapters
	model    string
	limits   limits
	stdout   io.Writer
}

func newBench(c *config, client *loadgen.HTTP, stdout io.Writer) *bench {
	b := &bench{c: c, http: client, adapters: c.adapters, limits: noLimits(), stdout: stdout, src: dataset.NewSource(c.path, 1, c.seed)}
	b.src.AsIDs, b.src.Vocab = !replay(c.dataset), c.vocab
	b.src.Template = c.template
	return b
}

func (c *config) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	path := c.resultFile
	if path == "-" {
		path = ""
	}
	out, err := program.OpenOutput("result-filename", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	client := loadgen.NewHTTP(loadgen.HTTPOptions{Timeout: timeout, Dial: c.dial})
	defer client.Close()
	b := newBench(c, client, stdout)
	defer b.close()
	if err := b.connect(ctx, stderr); err != nil {
		return program.Interrupted(ctx, err)
	}
	if err := b.warmUp(ctx); err != nil {
		return program.Interrupted(ctx, err)
	}
	results, err := b.cases(ctx, out)
	if err != nil {
		return program.Interrupted(ctx, err)
	}
	if path != "" {
		fmt.Fprintf(stdout, "\nResults are saved to %s\n", path)
	}
	if c.report {
		fmt.Fprintln(stdout, c.summary(results))
	}
	return nil
}

func (b *bench) close() {
	if b.tok != nil {
		_ = b.tok.Close() // frees memory; nothing to save
	}
}

// connect waits for the server and finds its limits and a tokenizer.
func (b *bench) connect(ctx context.Context, stderr io.Writer) error {
	models, err := b.http.WaitReady(ctx, b.c.base, readyWait, func(err error) {
		fmt.Fprintf(stderr, "Waiting up to %v for the server at %s (%v)\n", readyWait, b.c.base, err)
	})
	if err != nil && (b.c.backend == "vllm" || !loadgen.IsPermanent(err)) {
		return err
	}
	if b.model = b.c.model; b.model == "" && len(models) > 0 {
		b.model = models[0]
	}
	name := b.c.tokenizer
	if b.c.backend == "sglang" {
		info, err := b.info(ctx)
		if err != nil {
			return err
		}
		if name == "" {
			name = info.tokenizer()
		}
		b.limits = info.limits()
		b.limits.print(b.stdout)
	}
	if name == "" {
		name = b.model
	}
	if b.tok, err = tokens.Choose(ctx, b.http, name, b.c.base, b.model, b.c.vocab); err != nil {
		return err
	}
	if b.tok != nil {
		b.src.Tokenizer = b.tok
	} else if replay(b.c.dataset) || b.c.promptFile != "" {
		return errNoTokenizer
	}
	return nil
}

func (b *bench) warmUp(ctx context.Context) error {
	if b.c.skipWarmup {
		return nil
	}
	sizes := slices.Compact(slices.Sorted(slices.Values(b.c.batches)))
	fmt.Fprintf(b.stdout, "======== Warmup Begin ========\nWarmup with batch_size=%s\n", python(sizes))
	for _, size := range sizes {
		input, output := min(slices.Max(b.c.inputs), warmupInput), min(slices.Max(b.c.outs), warmupOutput)
		if b.limits.skip(b.c, size, input, output, io.Discard) {
			continue
		}
		r, err := b.measure(ctx, size, input, output, true)
		if err == nil {
			err = r.print(b.stdout, true)
		}
		if err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	}
	_, err := fmt.Fprint(b.stdout, "======== Warmup End   ========\n\n")
	return err
}

// cases measures all combinations of sizes and lengths.
func (b *bench) cases(ctx context.Context, out io.Writer) ([]*result, error) {
	var results []*result
	for _, size := range b.c.batches {
		for _, input := range b.c.inputs {
			for _, output := range b.c.outs {
				if b.limits.skip(b.c, size, input, output, b.stdout) {
					continue
				}
				r, err := b.measure(ctx, size, input, output, !b.c.keepEOS)
				if err != nil {
					return nil, fmt.Errorf("batch of %d, input %d, output %d: %w", size, input, output, err)
				}
				r.RunName = b.c.name
				if err := errors.Join(r.print(b.stdout, !b.c.keepEOS), json.NewEncoder(out).Encode(r)); err != nil {
					return nil, err
				}
				results = append(results, r)
			}
		}
	}
	if len(results) == 0 {
		return nil, errors.New("every batch is larger than the server's limits")
	}
	return results, nil
}

// measure sends one batch.
func (b *bench) measure(ctx context.Context, size, input, output int, ignoreEOS bool) (*result, error) {
	if err := b.flush(ctx); err != nil {
		return nil, err
	}
	prompts, err := b.prompts(size, input, output)
	if err != nil {
		return nil, err
	}
	if b.c.dataset == "generated-shared-prefix" && b.c.promptFile == "" {
		output = b.c.prefix.OutputLen
	}
	sum := 0
	for _, ids := range prompts {
		sum += len(ids)
	}
	fmt.Fprintf(b.stdout, "#Input tokens: %d\n#Output tokens: %d\n", sum, size*output)
	if err := b.fillCache(ctx, prompts); err != nil {
		return nil, err
	}
	answers, err := b.exchange(ctx, prompts, output, ignoreEOS)
	if err != nil {
		return nil, err
	}
	r := newResult(answers, sum, output)
	if b.c.backend == "sglang" {
		if info, err := b.info(ctx); err == nil {
			r.AcceptLength, r.LastGen = info.speeds()
		}
	}
	return r, nil
}

// exchange posts the batch and reads its stream.
func (b *bench) exchange(ctx context.Context, prompts [][]int32, output int, ignoreEOS bool) (batch, error) {
	path, payload := b.payload(prompts, output, ignoreEOS)
	body, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	x := b.http.Do(ctx, loadgen.Call{URL: b.c.base + path, Body: body})
	if x.Kind != record.OK {
		return nil, errors.New(x.Err)
	}
	answers := make(batch, len(prompts))
	for _, ev := range x.Events {
		if err := answers.add(ev, ev.At.Sub(begin)); err != nil {
			return nil, err
		}
	}
	if !x.Finish {
		return nil, errors.New("the stream ended without [DONE]")
	}
	return answers, answers.check(ignoreEOS)
}

// payload is the request for a batch, and the path it goes to.
func (b *bench) payload(prompts [][]int32, output int, ignoreEOS bool) (string, map[string]any) {
	if b.c.backend == "vllm" {
		body := map[string]any{"model": b.model, "prompt": prompts, "max_tokens": output, "temperature": b.c.temperature, "ignore_eos": ignoreEOS, "stream": true}
		if b.c.logprobs {
			body["logprobs"] = 1
		}
		return "/v1/completions", body
	}
	sampling := map[string]any{"temperature": b.c.temperature, "max_new_tokens": output, "ignore_eos": ignoreEOS}
	if b.c.interval > 1 {
		sampling["stream_interval"] = b.c.interval
	}
	body := map[string]any{"input_ids": prompts, "sampling_params": sampling, "stream": true}
	if b.c.logprobs {
		body["return_logprob"] = true
	}
	if b.c.parallel {
		body["parallel_batch"] = true
	}
	switch names := b.c.adapters.Names; {
	case len(names) == 1:
		body["lora_path"] = names[0]
	case len(names) > 1:
		picked := make([]string, len(prompts))
		for i := range picked {
			picked[i] = b.adapters.Pick(b.src)
		}
		body["lora_path"] = picked
	}
	return "/generate", body
}

// fillCache has the server compute the first part of each prompt.
func (b *bench) fillCache(ctx context.Context, prompts [][]int32) error {
	prefixes := make([][]int32, 0, len(prompts))
	for _, ids := range prompts {
		if n := int(float64(len(ids)) * b.c.hitRate); n > 0 {
			prefixes = append(prefixes, ids[:n])
		}
	}
	if len(prefixes) == 0 {
		return nil
	}
	fmt.Fprintf(b.stdout, "Warming up cache with %.1f%% hit rate (%d tokens per request)\n", 100*b.c.hitRate, len(prefixes[0]))
	path, payload := b.payload(prefixes, 1, true)
	payload["stream"] = false
	if _, err := b.ask(ctx, http.MethodPost, path, payload, timeout); err != nil {
		return fmt.Errorf("--cache-hit-rate: %w", err)
	}
	_, err := fmt.Fprintln(b.stdout, "Cache warmup completed")
	return err
}

func (b *bench) flush(ctx context.Context) error {
	path := "/flush_cache"
	if b.c.backend == "vllm" {
		path = "/reset_prefix_cache"
	}
	_, err := b.ask(ctx, http.MethodPost, path, nil, askWait)
	return err
}

// ask sends a request that is not measured. An answer other than 2xx is an error.
func (b *bench) ask(ctx context.Context, method, path string, payload any, wait time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var body []byte
	if payload != nil {
		var err error
		if body, err = json.Marshal(payload); err != nil {
			return nil, err
		}
	}
	status, data, err := b.http.Fetch(ctx, method, b.c.base+path, body)
	if err != nil {
		return nil, err
	}
	if status/100 != 2 {
		return nil, fmt.Errorf("%s %s: %d %s: %.200s", method, path, status, http.StatusText(status), data)
	}
	return data, nil
}

// limits are what a server can run at once.
type limits struct {
	perGroup, groups int     // requests of each data-parallel group
	running, tokens  float64 // +Inf if not known
}

func noLimits() limits { return limits{running: math.Inf(1), tokens: math.Inf(1)} }

func (l limits) print(w io.Writer) {
	if l.groups == 0 {
		fmt.Fprintln(w, "WARNING: the server does not tell its limits; batches that are too large will wait there")
		return
	}
	fmt.Fprintf(w, "max_running_requests_per_dp=%d\nnum_dp_ranks=%d\nskip_max_running_requests_threshold=%.0f\nskip_token_capacity_threshold=%.0f\n", l.perGroup, l.groups, l.running, l.tokens)
}

// skip tells whether a batch would not run at once, and says so.
func (l limits) skip(c *config, size, input, output int, w io.Writer) bool {
	running := float64(size)
	if c.multiBatch {
		running = min(running, l.running)
	}
	if running > l.running {
		fmt.Fprintf(w, "========Skip benchmark batch_size=%d > skip_max_running_requests_threshold=%.0f due to max running requests limit.========\n", size, l.running)
		return true
	}
	prompt := float64(input)
	if len(c.lens) > 0 {
		sum := 0
		for i := range size {
			sum += c.lens[i%len(c.lens)]
		}
		prompt = float64(sum) / float64(size)
	}
	resident := running * (prompt + float64(output))
	if !c.skipCapacity && resident > l.tokens {
		fmt.Fprintf(w, "========Skip benchmark batch_size=%d input_len=%d output_len=%d: resident_tokens=%.0f > skip_token_capacity_threshold=%.0f due to kv cache limit.========\n", size, input, output, resident, l.tokens)
		return true
	}
	return false
}

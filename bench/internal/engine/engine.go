// Package engine runs this project's engine inside a benchmark, without a server.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/llm"
)

// Define adds the engine's flags, with the names that the server has for them.
func Define(f *pflag.FlagSet, cfg *llm.Config) {
	f.StringVar(&cfg.Model, "model-path", "smollm2-135m", "the model: a name, a directory or a .gguf file")
	f.StringVar(&cfg.Model, "model", "smollm2-135m", "the same")
	f.BoolVar(&cfg.DummyWeight, "dummy-weight", false, "random weights: only the configuration and the tokenizer are read")
	f.StringVar(&cfg.DType, "dtype", "auto", "type of weights and KV: auto, float32 or bfloat16")
	f.StringVar(&cfg.Device, "device", "auto", "auto, cpu, cuda, or ref")
	f.IntVar(&cfg.Threads, "threads", 0, "CPU threads; 0: the cores that the process may use")
	f.IntVar(&cfg.MaxRunningReq, "max-running-requests", 0, "requests that run at once; 0: the engine's default")
	f.IntVar(&cfg.MaxSeqLenOverride, "max-seq-len-override", 0, "tokens of prompt and answer together; 0: the model's")
	f.Float64Var(&cfg.MemoryRatio, "memory-ratio", 0.9, "share of the free memory for weights and KV")
	f.IntVar(&cfg.MaxExtendTokens, "max-prefill-length", 0, "prompt tokens that a batch computes at most; 0: the engine's default")
	f.IntVar(&cfg.NumPageOverride, "num-pages", 0, "pages of the KV cache; 0: by --memory-ratio")
	f.IntVar(&cfg.PageSize, "page-size", 0, "tokens of a page; 0: the engine's default")
	f.StringVar(&cfg.CacheType, "cache-type", "radix", "prefix cache: radix or naive")
	f.StringVar(&cfg.AttentionBackend, "attention-backend", "auto", "auto, ours, fa, or fi, which is FlashInfer's, of a GPU")
	f.StringVar(&cfg.SchedulePolicy, "schedule-policy", "fcfs", "which waiting request is first: fcfs or lpm")
	cfg.MixedTokens = new(128)
	f.IntVar(cfg.MixedTokens, "mixed-prefill-tokens", *cfg.MixedTokens, "prompt tokens beside decoding requests in a batch; 0: prompts run alone")
	cfg.CUDAGraphMaxBS = new(256)
	f.IntVar(cfg.CUDAGraphMaxBS, "cuda-graph-max-bs", *cfg.CUDAGraphMaxBS, "requests up to which a GPU gets a decoding batch as one CUDA graph; 0: none")
	f.BoolVar(&cfg.DisableOverlap, "disable-overlap-schedule", false, "plan a batch only when the one before is done")
}

// Open starts an engine that says nothing but errors.
func Open(ctx context.Context, cfg llm.Config) (*llm.LLM, error) {
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	l, err := llm.New(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return l, nil
}

// Greedy asks for exactly n tokens, each the likeliest one.
func Greedy(n int) llm.SamplingParams {
	p := llm.DefaultSampling()
	p.MaxTokens, p.IgnoreEOS = n, true
	return p
}

// RandomIDs returns n ids of the engine's vocabulary.
func RandomIDs(rng *rand.Rand, eng *llm.LLM, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(eng.Info().VocabSize))
	}
	return ids
}

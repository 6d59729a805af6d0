package cli

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/llm"
)

const defaultModel = "smollm2-135m"

const (
	modelUsage  = "the model: a directory, a .gguf file, a known name, a hub's org/name[@revision] or org/name/file.gguf"
	sourceUsage = "the hub of org/name: huggingface or modelscope"
)

// engineFlags are mini-sglang's options of an engine. Those that choose among
// GPU implementations are here so that its command lines run; a value that asks
// for something that a CPU can't do is an error.
type engineFlags struct {
	model, dtype, quantization string
	device, cache              string
	policy, admission          string
	mixed                      int
	disableOverlap             bool
	running, maxSeqLen, pages  positive
	pageSize, extend, threads  positive
	memoryRatio                float64
	seed                       uint64
	logLevel                   level
	tensorParallel             positive
	attention, moe, source     string
	graphMaxBatch              int
	dummyWeight, disablePyNCCL bool
}

// engineAliases are the further names of engine flags.
var engineAliases = map[string][]string{
	"model-path":           {"model"},
	"tensor-parallel-size": {"tp-size"},
	"cuda-graph-max-bs":    {"graph"},
	"max-prefill-length":   {"max-extend-length"},
	"attention-backend":    {"attn"},
}

func (f *engineFlags) register(flags *pflag.FlagSet) {
	f.running, f.pageSize, f.extend, f.tensorParallel = 256, 1, 8192, 1
	flags.StringVar(&f.model, "model-path", defaultModel, modelUsage)
	flags.StringVar(&f.dtype, "dtype", "auto", "type of weights and KV: auto, float32 or bfloat16")
	flags.StringVar(&f.quantization, "quantization", "auto", "of weights: auto (quantized ones are computed with as they are, unless --dtype float32), none (they become --dtype), int8 or int4 (others are quantized at load)")
	flags.StringVar(&f.device, "device", "auto", "auto, cpu, or ref (slow; to compare results with)")
	flags.Var(&f.threads, "threads", "CPU threads (default: the cores that the process may use)")
	flags.Var(&f.running, "max-running-requests", "requests that run at once")
	flags.Var(&f.maxSeqLen, "max-seq-len-override", "tokens of prompt and answer together (default: the model's)")
	flags.Float64Var(&f.memoryRatio, "memory-ratio", 0.9, "share of the free memory for weights and KV")
	flags.Var(&f.extend, "max-prefill-length", "prompt tokens that a batch computes at most")
	flags.Var(&f.pages, "num-pages", "pages of the KV cache (default: by --memory-ratio)")
	flags.Var(&f.pageSize, "page-size", "tokens of a page, 1 to 256")
	flags.StringVar(&f.cache, "cache-type", "radix", "prefix cache: radix or naive")
	flags.StringVar(&f.policy, "schedule-policy", "fcfs", "which waiting request is first: fcfs, or lpm (the longest cached prefix)")
	flags.StringVar(&f.admission, "admission", "optimistic", "KV pages to reserve: optimistic (what outputs use on average, preempting when short) or conservative (all of max_tokens)")
	flags.IntVar(&f.mixed, "mixed-prefill-tokens", 128, "prompt tokens that may run beside decoding requests in one batch; 0: prompts run alone")
	flags.BoolVar(&f.disableOverlap, "disable-overlap-schedule", false, "plan a batch only when the one before is done")
	flags.Uint64Var(&f.seed, "seed", 42, "for the random numbers of requests that bring no seed")
	flags.Var(&f.logLevel, "log-level", "debug, info, warning or error")
	flags.Var(&f.tensorParallel, "tensor-parallel-size", "ranks to split the model over; on a CPU they share the threads, for trying it out")
	flags.StringVar(&f.attention, "attention-backend", "auto", "only auto in a CPU build")
	flags.StringVar(&f.moe, "moe-backend", "auto", "only auto in a CPU build")
	flags.StringVar(&f.source, "model-source", "huggingface", sourceUsage)
	flags.IntVar(&f.graphMaxBatch, "cuda-graph-max-bs", 0, "no effect in a CPU build")
	flags.BoolVar(&f.disablePyNCCL, "disable-pynccl", false, "no effect in a CPU build")
	flags.BoolVar(&f.dummyWeight, "dummy-weight", false, "random weights: only the configuration and the tokenizer are read")
}

// check refuses what this build can't do.
func (f *engineFlags) check() error {
	const cpuOnly = "this build runs on the CPU"
	switch {
	case f.attention != "auto":
		return usageErrorf("--attention-backend %s: %s and has no GPU attention; use auto", f.attention, cpuOnly)
	case f.moe != "auto":
		return usageErrorf("--moe-backend %s: %s; use auto", f.moe, cpuOnly)
	case f.graphMaxBatch < 0:
		return usageErrorf("--cuda-graph-max-bs must be at least 0, got %d", f.graphMaxBatch)
	case !(f.memoryRatio > 0 && f.memoryRatio <= 1):
		return usageErrorf("--memory-ratio must be in (0, 1], got %v", f.memoryRatio)
	}
	return nil
}

func (f *engineFlags) config(log *slog.Logger) llm.Config {
	if f.graphMaxBatch > 0 || f.disablePyNCCL {
		log.Info("--cuda-graph-max-bs and --disable-pynccl have no effect on the CPU")
	}
	return llm.Config{
		Model: f.model, ModelSource: f.source, DummyWeight: f.dummyWeight, DType: f.dtype, Quantization: f.quantization, Device: f.device, TPSize: int(f.tensorParallel), Threads: int(f.threads),
		MaxRunningReq: int(f.running), MaxSeqLenOverride: int(f.maxSeqLen), NumPageOverride: int(f.pages),
		PageSize: int(f.pageSize), MaxExtendTokens: int(f.extend), MemoryRatio: f.memoryRatio,
		CacheType: f.cache, SchedulePolicy: f.policy, Admission: f.admission, MixedTokens: &f.mixed,
		DisableOverlap: f.disableOverlap, Seed: &f.seed, Logger: log,
	}
}

func (f *engineFlags) logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(f.logLevel)}))
}

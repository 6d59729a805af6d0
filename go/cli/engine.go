package cli

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/minisgl/minisgl/go/llm"
)

const (
	defaultModel         = "smollm2-135m"
	defaultGraphMaxBatch = 256
)

const (
	modelUsage  = "the model: a directory, a .gguf file, a known name, a hub's org/name[@revision] or org/name/file.gguf"
	sourceUsage = "the hub of org/name: huggingface or modelscope"
)

// engineFlags are mini-sglang's options of an engine. Those that choose among
// GPU implementations are here so that its command lines run.
type engineFlags struct {
	model, dtype, device, cache string
	quantization, kvDType       string
	policy, admission           string
	mixed                       int
	disableOverlap              bool
	disableJumpForward          bool
	speculation                 string
	draftTokens                 positive
	running, maxSeqLen, pages   positive
	pageSize, extend, threads   positive
	memoryRatio                 float64
	seed                        uint64
	chatTemplate                string
	disableRadix                bool
	logLevel                    level
	tensorParallel              positive
	attention, moe, source      string
	graphMaxBatch               int
	graphBatches                []int
	dummyWeight, disablePyNCCL  bool
}

// engineAliases are the further names of engine flags.
var engineAliases = map[string][]string{
	"model-path":           {"model"},
	"tensor-parallel-size": {"tp-size"},
	"cuda-graph-max-bs":    {"graph"},
	"max-prefill-length":   {"max-extend-length", "chunked-prefill-size"},
	"attention-backend":    {"attn"},
	"memory-ratio":         {"mem-fraction-static"},
	"max-seq-len-override": {"context-length"},
	"seed":                 {"random-seed"},
}

// Titles of --help, in their order.
const (
	modelGroup    = "Model"
	memoryGroup   = "Memory and batches"
	computeGroup  = "Computing"
	logGroup      = "Logging and settings"
	samplingGroup = "Sampling"
	chatGroup     = "Conversation"
	serverGroup   = "Server"
	accessGroup   = "Access"
)

var engineGroups = []string{modelGroup, memoryGroup, computeGroup, logGroup}

func (f *engineFlags) register(flags *pflag.FlagSet) {
	f.running, f.pageSize, f.extend, f.tensorParallel = 256, 1, 8192, 1
	inGroup(flags, modelGroup, func() { f.registerModel(flags) })
	inGroup(flags, memoryGroup, func() { f.registerMemory(flags) })
	inGroup(flags, computeGroup, func() { f.registerCompute(flags) })
	inGroup(flags, logGroup, func() { flags.Var(&f.logLevel, "log-level", "debug, info, warning or error") })
}

func (f *engineFlags) registerModel(flags *pflag.FlagSet) {
	flags.StringVar(&f.model, "model-path", defaultModel, modelUsage)
	flags.StringVar(&f.source, "model-source", "huggingface", sourceUsage)
	flags.StringVar(&f.dtype, "dtype", "auto", "type of weights: auto (the checkpoint's), float32, bfloat16 or float16")
	flags.StringVar(&f.quantization, "quantization", "auto", "of weights: auto (quantized ones are computed with as they are, unless --dtype float32), none (they become --dtype), int8, int4 or fp8 (others are quantized at load; fp8: on a GPU)")
	flags.BoolVar(&f.dummyWeight, "dummy-weight", false, "random weights: only the configuration and the tokenizer are read")
	flags.StringVar(&f.chatTemplate, "chat-template", "", "file of a Jinja chat template that replaces the model's own")
	flags.Var(&f.maxSeqLen, "max-seq-len-override", "tokens of prompt and answer together (default: the model's)")
	flags.Uint64Var(&f.seed, "seed", 42, "for the random numbers of requests that bring no seed")
}

func (f *engineFlags) registerMemory(flags *pflag.FlagSet) {
	flags.Var(&f.running, "max-running-requests", "requests that run at once")
	flags.Var(&f.extend, "max-prefill-length", "prompt tokens that a batch computes at most")
	flags.IntVar(&f.mixed, "mixed-prefill-tokens", 128, "prompt tokens that may run beside decoding requests in one batch; 0: prompts run alone")
	flags.StringVar(&f.kvDType, "kv-cache-dtype", "auto", "type of keys and values: auto (that of --dtype), float32, bfloat16, float16, int8 (half of bfloat16's memory, small errors) or fp8 (e4m3; on a GPU)")
	flags.Float64Var(&f.memoryRatio, "memory-ratio", 0.9, "share of the free memory for weights and KV")
	flags.Var(&f.pages, "num-pages", "pages of the KV cache (default: by --memory-ratio)")
	flags.Var(&f.pageSize, "page-size", "tokens of a page, 1 to 256")
	flags.StringVar(&f.cache, "cache-type", "radix", "prefix cache: radix or naive")
	flags.BoolVar(&f.disableRadix, "disable-radix-cache", false, "the same as --cache-type naive")
	flags.StringVar(&f.policy, "schedule-policy", "fcfs", "which waiting request is first: fcfs, or lpm (the longest cached prefix)")
	flags.StringVar(&f.admission, "admission", "optimistic", "KV pages to reserve: optimistic (what outputs use on average, preempting when short) or conservative (all of max_tokens)")
	flags.BoolVar(&f.disableOverlap, "disable-overlap-schedule", false, "plan a batch only when the one before is done")
	flags.BoolVar(&f.disableJumpForward, "disable-jump-forward", false, "sample also the tokens that a grammar forces, one by one, instead of computing them together; the tokens stay the same")
	flags.StringVar(&f.speculation, "speculative-algorithm", "", "guess tokens and verify several in one step, where that pays: ngram (what followed the last tokens before); the tokens stay the same (default: off)")
	flags.Var(&f.draftTokens, "speculative-num-draft-tokens", "guesses in a step at most, 1 to 64 (default 8 with --speculative-algorithm)")
}

func (f *engineFlags) registerCompute(flags *pflag.FlagSet) {
	flags.StringVar(&f.device, "device", "auto", "auto (a GPU if there is one), cpu, cuda, or ref (slow; to compare results with)")
	flags.Var(&f.threads, "threads", "CPU threads (default: the cores that the process may use)")
	flags.Var(&f.tensorParallel, "tensor-parallel-size", "ranks to split the model over: as many GPUs, which need NVIDIA's NCCL; on a CPU they share the threads, for trying it out")
	flags.StringVar(&f.attention, "attention-backend", "auto", "auto, ours or fa: our own kernel, which is FlashAttention-style; fi: FlashInfer's (make flashinfer builds it); or a pair for prompts and decoding, of which the latter is used for both. A GPU refuses trtllm; a CPU has one kernel for all")
	flags.StringVar(&f.moe, "moe-backend", "auto", "auto or fused; no effect in a CPU build")
	flags.IntVar(&f.graphMaxBatch, "cuda-graph-max-bs", defaultGraphMaxBatch, "requests up to which a GPU gets a decoding batch as one CUDA graph; there are some for 1, 2, 4, 8, 16, 24, … requests, and others are padded; 0: none")
	flags.IntSliceVar(&f.graphBatches, "cuda-graph-bs", nil, "those numbers of requests instead: 1,2,4,8")
	flags.BoolVar(&f.disablePyNCCL, "disable-pynccl", false, "no effect: GPUs exchange by NCCL's own library, CPUs by none")
}

// check refuses what can't be.
func (f *engineFlags) check() error {
	if err := llm.CheckAttentionBackend(f.attention); err != nil {
		return usageErrorf("--attention-backend %v", err)
	}
	switch {
	case f.moe != "auto" && f.moe != "fused":
		return usageErrorf("--moe-backend must be auto or fused, got %s", f.moe)
	case f.graphMaxBatch < 0:
		return usageErrorf("--cuda-graph-max-bs must be at least 0, got %d", f.graphMaxBatch)
	case !(f.memoryRatio > 0 && f.memoryRatio <= 1):
		return usageErrorf("--memory-ratio must be in (0, 1], got %v", f.memoryRatio)
	}
	return nil
}

// forGPUs lists the flags that were given and choose among GPU implementations.
func (f *engineFlags) forGPUs() []string {
	var given []string
	for name, is := range map[string]bool{
		"--attention-backend": f.attention != "auto", "--moe-backend": f.moe != "auto",
		"--cuda-graph-max-bs": f.graphMaxBatch != defaultGraphMaxBatch, "--cuda-graph-bs": len(f.graphBatches) > 0,
		"--disable-pynccl": f.disablePyNCCL,
	} {
		if is {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	return given
}

func (f *engineFlags) config(log *slog.Logger) llm.Config {
	if given := f.forGPUs(); len(given) > 0 {
		log.Info("flags for GPUs have no effect on the CPU: there is one attention kernel, no graphs and no NCCL", "flags", strings.Join(given, " "))
	}
	if f.disableRadix {
		f.cache = "naive"
	}
	return llm.Config{
		Model: f.model, ModelSource: f.source, DummyWeight: f.dummyWeight, DType: f.dtype, KVCacheDType: f.kvDType, Quantization: f.quantization, Device: f.device, TPSize: int(f.tensorParallel), Threads: int(f.threads),
		MaxRunningReq: int(f.running), MaxSeqLenOverride: int(f.maxSeqLen), NumPageOverride: int(f.pages),
		PageSize: int(f.pageSize), MaxExtendTokens: int(f.extend), MemoryRatio: f.memoryRatio,
		AttentionBackend: f.attention, CUDAGraphMaxBS: &f.graphMaxBatch, CUDAGraphBS: f.graphBatches, CacheType: f.cache, SchedulePolicy: f.policy, Admission: f.admission, MixedTokens: &f.mixed,
		SpeculativeAlgorithm: f.speculation, SpeculativeDraftTokens: int(f.draftTokens),
		DisableOverlap: f.disableOverlap, DisableJumpForward: f.disableJumpForward, Seed: &f.seed, ChatTemplate: f.chatTemplate, Logger: log,
	}
}

func (f *engineFlags) logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(f.logLevel)}))
}

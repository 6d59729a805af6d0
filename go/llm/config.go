package llm

import (
	"cmp"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/weights"
)

// Config holds the engine's options; the JSON names are the keyword arguments of
// Python's LLM. A zero field means its default.
type Config struct {
	Model              string       `json:"model_path"`           // directory, .gguf file, known name, or a hub's org/name[@revision]
	ModelSource        string       `json:"model_source"`         // the hub of org/name: huggingface (default), modelscope
	DummyWeight        bool         `json:"use_dummy_weight"`     // random weights; only the configuration and the tokenizer are read
	DType              string       `json:"dtype"`                // auto (default): the checkpoint's; float32, bfloat16, float16
	KVCacheDType       string       `json:"kv_cache_dtype"`       // auto (default): DType; float32, bfloat16, float16, int8, fp8 (e4m3; not on a CPU)
	Quantization       string       `json:"quantization"`         // auto (default): quantized weights are computed with as they are, unless dtype is float32; none: they become dtype; int8, int4, fp8 (e4m3; not on a CPU, where weights stored so become dtype): others are quantized
	Device             string       `json:"device"`               // auto (default), cpu, cuda, ref
	TPSize             int          `json:"tp_size"`              // tensor-parallel ranks, each a device of this process; default 1
	Threads            int          `json:"num_threads"`          // default: the CPU cores that the process may use
	MaxRunningReq      int          `json:"max_running_req"`      // requests that run at once; default 256
	MaxSeqLenOverride  int          `json:"max_seq_len_override"` // default: the model's max_position_embeddings
	NumPageOverride    int          `json:"num_page_override"`    // default: from MemoryRatio
	PageSize           int          `json:"page_size"`            // tokens of a KV page, 1 to 256; default 1
	MaxExtendTokens    int          `json:"max_extend_tokens"`    // prefill tokens of a batch; default 8192
	MemoryRatio        float64      `json:"memory_ratio"`         // share of the free memory for weights and KV; default 0.9
	CacheType          string       `json:"cache_type"`           // radix (default), naive
	SchedulePolicy     string       `json:"schedule_policy"`      // which waiting request is first: fcfs (default), lpm (longest cached prefix)
	Admission          string       `json:"admission"`            // pages to reserve: optimistic (default), conservative (for all of max_tokens)
	AttentionBackend   string       `json:"attention_backend"`    // auto (default), ours or fa: our own kernel, which is FlashAttention-style; fi: FlashInfer's, of the library that make flashinfer builds; trtllm: GPUs refuse it; or a pair for prompts and decoding, of which the latter is used for both. CPUs have one kernel for all
	CUDAGraphMaxBS     *int         `json:"cuda_graph_max_bs"`    // requests up to which a GPU gets a decoding batch as one CUDA graph, padded to 1, 2, 4, or a multiple of 8; 0: none; default 256
	CUDAGraphBS        []int        `json:"cuda_graph_bs"`        // the numbers of requests to pad to, instead of those up to CUDAGraphMaxBS
	MixedTokens        *int         `json:"mixed_prefill_tokens"` // prompt tokens beside decoding requests in a batch, 0: prompts run alone; default 128
	DisableOverlap     bool         `json:"disable_overlap"`      // plan a batch only when the one before is done; also by MINISGL_DISABLE_OVERLAP_SCHEDULING=1
	DisableJumpForward bool         `json:"disable_jump_forward"` // sample also the tokens that a grammar forces, one by one; they are the same
	Seed               *uint64      `json:"seed"`                 // of requests that bring none; default 42
	ChatTemplate       string       `json:"chat_template"`        // file of a Jinja template that replaces the model's
	Logger             *slog.Logger `json:"-"`                    // default: slog.Default()

	// Speculation: tokens are guessed and verified several at a time, where that
	// pays. The tokens are the same as without.
	SpeculativeAlgorithm   string `json:"speculative_algorithm"`        // off (default), or ngram: what followed the last tokens before
	SpeculativeDraftTokens int    `json:"speculative_num_draft_tokens"` // guesses in a batch at most, 1 to 64; default 8
	SpeculateAlways        bool   `json:"-"`                            // guess also where it does not pay: to test with
}

const (
	defaultMaxRunningReq   = 256
	defaultMaxExtendTokens = 8192
	defaultMixedTokens     = 128
	defaultCUDAGraphMaxBS  = 256
	defaultMemoryRatio     = 0.9
	defaultSeed            = 42
	maxTPSize              = 64
	maxGraphBS             = 2048 // a graph for each multiple of 8 takes time to make, and memory
)

// The most that a Config may ask for.
const (
	MaxPageSize        = 256   // tokens
	MaxRunningRequests = 65536 // of MaxRunningReq
)

// withDefaults returns c with its zero fields filled in, or the first field
// whose value can't be used.
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.ModelSource, weights.HuggingFace)
	setDefault(&c.DType, "auto")
	setDefault(&c.KVCacheDType, "auto")
	setDefault(&c.Quantization, "auto")
	setDefault(&c.Device, "auto")
	setDefault(&c.CacheType, "radix")
	setDefault(&c.SchedulePolicy, "fcfs")
	setDefault(&c.Admission, "optimistic")
	setDefault(&c.TPSize, 1)
	setDefault(&c.MaxRunningReq, defaultMaxRunningReq)
	setDefault(&c.MaxExtendTokens, defaultMaxExtendTokens)
	setDefault(&c.MixedTokens, new(defaultMixedTokens))
	setDefault(&c.AttentionBackend, "auto")
	setDefault(&c.CUDAGraphMaxBS, new(defaultCUDAGraphMaxBS))
	setDefault(&c.PageSize, 1)
	setDefault(&c.MemoryRatio, defaultMemoryRatio)
	setDefault(&c.Seed, new(uint64(defaultSeed)))
	if envTrue("MINISGL_DISABLE_OVERLAP_SCHEDULING") {
		c.DisableOverlap = true
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, cmp.Or(c.checkSpeculation(), c.checkAttention(), c.validate())
}

// envTrue reads a boolean variable as mini-sglang does.
func envTrue(name string) bool {
	return oneOf(strings.ToLower(os.Getenv(name)), "1", "true", "yes")
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	switch {
	case c.Model == "":
		return core.Invalid("model_path", "is empty; give a model's name (smollm2-135m, or a hub's org/name), a directory or a .gguf file")
	case !oneOf(c.ModelSource, weights.HuggingFace, weights.ModelScope):
		return core.Invalid("model_source", "must be huggingface or modelscope, got %q", c.ModelSource)
	case !oneOf(c.DType, "auto", "float32", "bfloat16", "float16"):
		return core.Invalid("dtype", "must be auto, float32, bfloat16 or float16, got %q", c.DType)
	case !oneOf(c.KVCacheDType, "auto", "float32", "bfloat16", "float16", "int8", "fp8"):
		return core.Invalid("kv_cache_dtype", "must be auto, float32, bfloat16, float16, int8 or fp8, got %q", c.KVCacheDType)
	case !oneOf(c.Quantization, "auto", "none", "int8", "int4", "fp8"):
		return core.Invalid("quantization", "must be auto, none, int8, int4 or fp8, got %q", c.Quantization)
	case !oneOf(c.Device, "auto", "cpu", "cuda", "ref"):
		return core.Invalid("device", "must be auto, cpu, cuda or ref, got %q", c.Device)
	case !oneOf(c.CacheType, "radix", "naive"):
		return core.Invalid("cache_type", "must be radix or naive, got %q", c.CacheType)
	case !oneOf(c.SchedulePolicy, "fcfs", "lpm"):
		return core.Invalid("schedule_policy", "must be fcfs or lpm, got %q", c.SchedulePolicy)
	case !oneOf(c.Admission, "optimistic", "conservative"):
		return core.Invalid("admission", "must be optimistic or conservative, got %q", c.Admission)
	case *c.CUDAGraphMaxBS < 0 || *c.CUDAGraphMaxBS > maxGraphBS:
		return core.Invalid("cuda_graph_max_bs", "must be 0 (off) to %d, got %d", maxGraphBS, *c.CUDAGraphMaxBS)
	case slices.ContainsFunc(c.CUDAGraphBS, func(n int) bool { return n < 1 || n > maxGraphBS }):
		return core.Invalid("cuda_graph_bs", "must be numbers from 1 to %d, got %v", maxGraphBS, c.CUDAGraphBS)
	case *c.MixedTokens < 0:
		return core.Invalid("mixed_prefill_tokens", "must be 0 (off) or more, got %d", *c.MixedTokens)
	case c.TPSize < 1 || c.TPSize > maxTPSize:
		return core.Invalid("tp_size", "must be 1 to %d, got %d", maxTPSize, c.TPSize)
	case c.Threads < 0 || c.Threads > 1024:
		return core.Invalid("num_threads", "must be 0 (all cores) to 1024, got %d", c.Threads)
	case c.MaxRunningReq < 1 || c.MaxRunningReq > MaxRunningRequests:
		return core.Invalid("max_running_req", "must be 1 to %d, got %d", MaxRunningRequests, c.MaxRunningReq)
	case c.MaxSeqLenOverride < 0:
		return core.Invalid("max_seq_len_override", "must be positive, got %d", c.MaxSeqLenOverride)
	case c.NumPageOverride < 0:
		return core.Invalid("num_page_override", "must be positive, got %d", c.NumPageOverride)
	case c.PageSize < 1 || c.PageSize > MaxPageSize:
		return core.Invalid("page_size", "must be 1 to %d, got %d", MaxPageSize, c.PageSize)
	case c.MaxExtendTokens < 1:
		return core.Invalid("max_extend_tokens", "must be at least 1, got %d", c.MaxExtendTokens)
	case !(c.MemoryRatio > 0 && c.MemoryRatio <= 1):
		return core.Invalid("memory_ratio", "must be in (0, 1], got %v", c.MemoryRatio)
	}
	return nil
}

func oneOf(s string, list ...string) bool {
	for _, l := range list {
		if s == l {
			return true
		}
	}
	return false
}

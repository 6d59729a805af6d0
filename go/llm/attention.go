package llm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/core"
	"github.com/minisgl/minisgl/go/internal/device"
	"github.com/minisgl/minisgl/go/internal/gpu"
	"github.com/minisgl/minisgl/go/internal/model"
	"github.com/minisgl/minisgl/go/internal/ops"
)

// attentionKernels are the names of attention kernels, and which those are. fa is ours: that is
// FlashAttention's way, tiles of keys in shared memory that a running softmax goes over on tensor
// cores, and gives a row the same bits in a prompt and in decoding.
var attentionKernels = map[string]string{"auto": "ours", "ours": "ours", "fa": "ours", "fi": "FlashInfer", "trtllm": "TensorRT-LLM"}

// CheckAttentionBackend wants the name of a kernel or a pair of names, for prompts and for
// decoding. The error goes on behind the name of a parameter.
func CheckAttentionBackend(value string) error {
	names := strings.Split(value, ",")
	for _, name := range names {
		if _, known := attentionKernels[name]; !known || len(names) > 2 {
			known := strings.Join(slices.Sorted(maps.Keys(attentionKernels)), ", ")
			return fmt.Errorf("must be one of %s, or a pair of these for prompts and decoding, got %q", known, value)
		}
	}
	return nil
}

func (c Config) checkAttention() error {
	if err := CheckAttentionBackend(c.AttentionBackend); err != nil {
		return core.Invalid("attention_backend", "%v", err)
	}
	return nil
}

// useAttention lets GPUs compute a model's attention by the kernel that the configuration names, or
// says why they can't. Of a pair, decoding's is for both: what a request has generated comes again as
// a prompt when it was preempted, or when a conversation goes on, and its tokens must not depend on
// that. On a CPU all names mean its one kernel, so that commands written for a GPU run there.
func (c Config) useAttention(mc model.Config, devs []device.Device) error {
	const instead = "ours (or auto, or fa) takes our own kernel, for prompts and decoding"
	names := strings.Split(c.AttentionBackend, ",")
	prompts, kernel := attentionKernels[names[0]], attentionKernels[names[len(names)-1]]
	_, kv := c.types(mc.DType)
	switch {
	case prompts == "TensorRT-LLM" || kernel == "TensorRT-LLM":
		return core.Invalid("attention_backend", "trtllm is not available: it needs TensorRT-LLM, which is not built in; %s", instead)
	case kernel == "ours":
		c.reportPair(prompts, kernel)
		return nil
	case kv != ops.BF16 && kv != ops.F16:
		return core.Invalid("attention_backend", "fi needs a KV cache of bfloat16 or float16 (kv_cache_dtype), and this one is %s; %s", typeNames[kv], instead)
	case !slices.Contains(gpu.FlashInferHeads, mc.HeadDim):
		return core.Invalid("attention_backend", "fi is compiled for heads of %v dimensions, and this model's have %d; %s", gpu.FlashInferHeads, mc.HeadDim, instead)
	}
	if err := gpu.FlashInfer(devs); err != nil {
		return core.Invalid("attention_backend", "fi is not available: %v; %s", err, instead)
	}
	c.reportPair(prompts, kernel)
	return nil
}

// reportPair tells that prompts don't have the kernel that was named for them.
func (c Config) reportPair(prompts, kernel string) {
	if prompts != kernel {
		c.Logger.Warn("attention_backend names different kernels for prompts and for decoding; the latter is used for both, since what was generated "+
			"may come again as a prompt, and tokens must not depend on that", "attention_backend", c.AttentionBackend, "used", kernel)
	}
}

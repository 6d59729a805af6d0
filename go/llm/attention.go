package llm

import (
	"maps"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/core"
)

// attentionNeeds are the names of attention kernels, and what those need that are not
// built here.
var attentionNeeds = map[string]string{"auto": "", "ours": "", "fa": "FlashAttention", "fi": "FlashInfer", "trtllm": "TensorRT-LLM"}

// checkAttention wants the name of a kernel or a pair of names, for prompts and for decoding.
func (c Config) checkAttention() error {
	names := strings.Split(c.AttentionBackend, ",")
	for _, name := range names {
		if _, known := attentionNeeds[name]; !known || len(names) > 2 {
			known := strings.Join(slices.Sorted(maps.Keys(attentionNeeds)), ", ")
			return core.Invalid("attention_backend", "must be one of %s, or a pair of these for prompts and decoding, got %q", known, c.AttentionBackend)
		}
	}
	return nil
}

// checkGPUAttention refuses kernels that a GPU could run and that are not built here. On a
// CPU all names mean its one kernel, so that commands written for a GPU run there.
func (c Config) checkGPUAttention() error {
	for name := range strings.SplitSeq(c.AttentionBackend, ",") {
		if needs := attentionNeeds[name]; needs != "" {
			return core.Invalid("attention_backend", "%s is not available: it needs %s, which is not built in; ours (or auto) takes our own kernel, for prompts and decoding", name, needs)
		}
	}
	return nil
}

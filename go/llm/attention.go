package llm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/minisgl/minisgl/go/internal/core"
)

// attentionNeeds are the names of attention kernels, and what those need that are not
// built here. fa is ours: that is FlashAttention's way, tiles of keys in shared memory that
// a running softmax goes over on tensor cores, and gives a row the same bits in a prompt and
// in decoding.
var attentionNeeds = map[string]string{"auto": "", "ours": "", "fa": "", "fi": "FlashInfer", "trtllm": "TensorRT-LLM"}

// CheckAttentionBackend wants the name of a kernel or a pair of names, for prompts and for
// decoding. The error goes on behind the name of a parameter.
func CheckAttentionBackend(value string) error {
	names := strings.Split(value, ",")
	for _, name := range names {
		if _, known := attentionNeeds[name]; !known || len(names) > 2 {
			known := strings.Join(slices.Sorted(maps.Keys(attentionNeeds)), ", ")
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

// checkGPUAttention refuses kernels that a GPU could run and that are not built here. On a
// CPU all names mean its one kernel, so that commands written for a GPU run there.
func (c Config) checkGPUAttention() error {
	for name := range strings.SplitSeq(c.AttentionBackend, ",") {
		if needs := attentionNeeds[name]; needs != "" {
			return core.Invalid("attention_backend", "%s is not available: it needs %s, which is not built in; ours (or auto, or fa) takes our own kernel, for prompts and decoding", name, needs)
		}
	}
	return nil
}

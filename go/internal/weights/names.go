package weights

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// architecture maps the GGUF tensors of one model architecture to Hugging Face names.
type architecture struct {
	class     string            // Hugging Face's name of the model class
	modelType string            // Hugging Face's model_type
	whole     map[string]string // names of tensors outside the layers
	layer     map[string]string // modules inside layer N: "blk.N.<key>.weight" is "model.layers.N.<value>.weight"
	rotated   map[string]string // the modules in llama.cpp's row order, each with the key of its number of heads
	consumed  []string          // tensors that belong to the configuration and are not exposed
}

// ropeFactors divides each rotary frequency. It becomes rope_scaling in the configuration.
const ropeFactors = "rope_freqs.weight"

var architectures = map[string]architecture{
	"llama": {
		class:     "LlamaForCausalLM",
		modelType: "llama",
		whole: map[string]string{
			"token_embd.weight":  "model.embed_tokens.weight",
			"output_norm.weight": "model.norm.weight",
			"output.weight":      "lm_head.weight",
		},
		layer: map[string]string{
			"attn_norm":   "input_layernorm",
			"attn_q":      "self_attn.q_proj",
			"attn_k":      "self_attn.k_proj",
			"attn_v":      "self_attn.v_proj",
			"attn_output": "self_attn.o_proj",
			"ffn_norm":    "post_attention_layernorm",
			"ffn_gate":    "mlp.gate_proj",
			"ffn_up":      "mlp.up_proj",
			"ffn_down":    "mlp.down_proj",
		},
		rotated:  map[string]string{"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"},
		consumed: []string{ropeFactors},
	},
}

// architectureOf finds the architecture that the metadata names, and that name, which prefixes its keys.
func architectureOf(metadata *Metadata) (string, architecture, error) {
	name, ok := metadata.String("general.architecture")
	if !ok {
		return "", architecture{}, fmt.Errorf("metadata lacks general.architecture")
	}
	arch, ok := architectures[name]
	if !ok {
		known := slices.Sorted(maps.Keys(architectures))
		return "", architecture{}, fmt.Errorf("GGUF architecture %q is not supported, only %s", name, strings.Join(known, ", "))
	}
	return name, arch, nil
}

// rename returns the Hugging Face name of a GGUF tensor and, inside a layer, its module.
func (a *architecture) rename(name string, layers int) (renamed, module string, err error) {
	if renamed, ok := a.whole[name]; ok {
		return renamed, "", nil
	}
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		number, part, _ := strings.Cut(rest, ".")
		module, kind, _ := strings.Cut(part, ".")
		layer, err := strconv.Atoi(number)
		target, known := a.layer[module]
		if err == nil && known && strconv.Itoa(layer) == number && (kind == "weight" || kind == "bias") {
			if layer < 0 || layer >= layers {
				return "", "", fmt.Errorf("tensor %q belongs to layer %d of a model with %d", name, layer, layers)
			}
			return fmt.Sprintf("model.layers.%d.%s.%s", layer, target, kind), module, nil
		}
	}
	return "", "", fmt.Errorf("tensor %q is not known for this architecture (%s)", name, a.class)
}

// order returns the permutation of a module's rows, given the number of heads they hold.
func order(t *stored, heads int) (permutation, error) {
	if rows := t.shape[0]; heads < 1 || rows%(2*heads) != 0 {
		return permutation{}, fmt.Errorf("tensor %q: %d rows are not %d heads of even size", t.name, rows, heads)
	}
	if len(t.shape) > 2 || len(t.shape) == 1 && formats[t.kind].blockSize > 1 {
		return permutation{}, fmt.Errorf("tensor %q: shape %v of type %v can't be put in order", t.name, t.shape, t.kind)
	}
	return permutation{half: t.shape[0] / heads / 2}, nil
}

package weights

import "maps"

// architecture maps the GGUF tensors of one model architecture to Hugging Face names.
type architecture struct {
	class     string                             // Hugging Face's name of the model class
	modelType string                             // Hugging Face's model_type
	layer     map[string]string                  // modules inside layer N: "blk.N.<key>.weight" is "model.layers.N.<value>.weight"
	rotated   map[string]string                  // the modules in llama.cpp's row order, each with the key of its number of heads
	experts   bool                               // layers have experts; a module with "*" in its name holds a matrix for each, the "*" being its number
	partial   bool                               // a part of each head may rotate
	plusOne   bool                               // the weights of norms are stored with one added
	own       func(s *settings, c *config) error // reads the architecture's own settings; nil: there are none
}

// ropeFactors divides each rotary frequency; longFactors and shortFactors do so beyond and up to the trained length.
// They become rope_scaling in the configuration and are not exposed.
const (
	ropeFactors  = "rope_freqs.weight"
	longFactors  = "rope_factors_long.weight"
	shortFactors = "rope_factors_short.weight"
)

var (
	// wholeNames maps the tensors outside the layers.
	wholeNames = map[string]string{
		"token_embd.weight":  "model.embed_tokens.weight",
		"output_norm.weight": "model.norm.weight",
		"output.weight":      "lm_head.weight",
	}
	// denseNames maps the modules of Llama's layers, whose names most architectures share.
	denseNames = map[string]string{
		"attn_norm":   "input_layernorm",
		"attn_q":      "self_attn.q_proj",
		"attn_k":      "self_attn.k_proj",
		"attn_v":      "self_attn.v_proj",
		"attn_output": "self_attn.o_proj",
		"ffn_norm":    "post_attention_layernorm",
		"ffn_gate":    "mlp.gate_proj",
		"ffn_up":      "mlp.up_proj",
		"ffn_down":    "mlp.down_proj",
	}
	headNorms = map[string]string{"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
)

// inPairs are the modules whose rows llama.cpp's converter puts in another order, for llama and mistral3.
var inPairs = map[string]string{"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}

// architectures has the names that llama.cpp gives them. Mistral models call themselves llama, the converter writing
// neither their class nor a sliding window, or mistral3 from Mistral Small 3.1 on.
var architectures = map[string]architecture{
	"llama":    {class: "LlamaForCausalLM", modelType: "llama", layer: denseNames, rotated: inPairs},
	"mistral3": {class: "Ministral3ForCausalLM", modelType: "ministral3", layer: denseNames, rotated: inPairs, own: readMistral3},
	"qwen2":    {class: "Qwen2ForCausalLM", modelType: "qwen2", layer: denseNames},
	"qwen3":    {class: "Qwen3ForCausalLM", modelType: "qwen3", layer: join(denseNames, headNorms)},
	"qwen3moe": {
		class:     "Qwen3MoeForCausalLM",
		modelType: "qwen3_moe",
		layer: without(join(denseNames, headNorms, map[string]string{
			"ffn_gate_inp":     "mlp.gate",
			"ffn_gate_exps":    "mlp.experts.*.gate_proj",
			"ffn_up_exps":      "mlp.experts.*.up_proj",
			"ffn_gate_up_exps": "mlp.experts.*.gate_up_proj",
			"ffn_down_exps":    "mlp.experts.*.down_proj",
		}), "ffn_gate", "ffn_up", "ffn_down"),
		experts: true,
	},
	"phi3": {
		class:     "Phi3ForCausalLM",
		modelType: "phi3",
		layer: without(join(denseNames, map[string]string{
			"attn_qkv": "self_attn.qkv_proj",
			"ffn_up":   "mlp.gate_up_proj",
		}), "attn_q", "attn_k", "attn_v", "ffn_gate"),
		partial: true,
		own:     readPhi3,
	},
	"gemma3": {
		class:     "Gemma3ForCausalLM",
		modelType: "gemma3_text",
		layer: join(denseNames, headNorms, map[string]string{
			"post_attention_norm": "post_attention_layernorm",
			"ffn_norm":            "pre_feedforward_layernorm",
			"post_ffw_norm":       "post_feedforward_layernorm",
		}),
		plusOne: true,
		own:     readGemma3,
	},
}

// join returns the entries of all maps, those of later ones first in rank.
func join(parts ...map[string]string) map[string]string {
	out := make(map[string]string)
	for _, part := range parts {
		maps.Copy(out, part)
	}
	return out
}

// without removes keys.
func without(m map[string]string, keys ...string) map[string]string {
	for _, key := range keys {
		delete(m, key)
	}
	return m
}

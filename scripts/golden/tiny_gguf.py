"""Tiny models as GGUF, with the names, the row order and the keys of llama.cpp's converter."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tiny_quants import kind_of, quantize
from tiny_specs import Spec
from tiny_tokenizer import BOS, CHAT_TEMPLATE, EOS, SPECIALS, vocabulary
from transformers import PreTrainedConfig, PreTrainedModel


def permute(values: np.ndarray, heads: int) -> np.ndarray:
    """The row order of llama.cpp's q and k: rotary pairs of a head become neighbours."""
    shape = values.shape
    return values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def add_sizes(writer: gguf.GGUFWriter, spec: Spec, config: PreTrainedConfig) -> None:
    """The hyperparameters that all architectures have."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_name(spec.name)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    gemma = spec.family == "gemma3"
    parameters = config.rope_parameters["full_attention"] if gemma else config.rope_parameters
    writer.add_rope_freq_base(parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if not gemma:
        writer.add_rope_dimension_count(int(head_dim * parameters.get("partial_rotary_factor", 1.0)))
    if "head_dim" in spec.config:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if gemma:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if gemma or spec.family == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)


def add_vocabulary(writer: gguf.GGUFWriter, spec: Spec) -> None:
    """A byte-level tokenizer."""
    tokens, merges = vocabulary(spec)
    kinds = [gguf.TokenType.CONTROL if token in SPECIALS else gguf.TokenType.NORMAL for token in tokens]
    for number in range(len(tokens), spec.config["vocab_size"]):
        tokens.append(f"[PAD{number}]")
        kinds.append(gguf.TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_experts(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    """The sizes of a mixture of experts."""
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def add_rope(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    """The scaling of the rotary embedding: divisors of its frequencies, as tensors."""
    parameters = config.rope_parameters
    if parameters.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(parameters["mscale_all_dim"])
        writer.add_attn_temperature_scale(parameters["llama_4_scaling_beta"])
    if parameters.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config.head_dim, parameters))
    if parameters.get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        ratio = config.max_position_embeddings / config.original_max_position_embeddings
        factor = math.sqrt(1 + math.log(ratio) / math.log(config.original_max_position_embeddings))
        writer.add_rope_scaling_attn_factors(factor)
        for name in ("long", "short"):
            divisors = np.array(parameters[f"{name}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{name}.weight", divisors)


def llama3_divisors(dim: int, parameters: dict[str, Any]) -> np.ndarray:
    """What the converter makes of Llama 3's scaling."""
    wavelength = 2 * np.pi * parameters["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    smooth = (parameters["original_max_position_embeddings"] / wavelength - low) / (high - low)
    smooth = np.clip(smooth, 0, 1)
    return (1 / ((1 - smooth) / parameters["factor"] + smooth)).astype(np.float32)


def converted(spec: Spec, config: PreTrainedConfig, name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """What the converter makes of a tensor: as a rule one, with its values put in order."""
    if "vision_tower" in name or "multi_modal_projector" in name:
        return {}
    name = name.replace("language_model.", "")
    permuted = spec.family in ("llama", "mistral3", "ministral3")
    if permuted and ".q_proj." in name:
        return {name: permute(values, config.num_attention_heads)}
    if permuted and ".k_proj." in name:
        return {name: permute(values, config.num_key_value_heads)}
    if spec.family == "gemma3" and name.endswith("norm.weight"):
        return {name: values + 1}
    if name.endswith("experts.gate_up_proj"):
        gate, up = np.split(values, 2, axis=1)
        module = name.removesuffix("gate_up_proj")
        return {f"{module}gate_proj.weight": gate, f"{module}up_proj.weight": up}
    if name.endswith("experts.down_proj"):
        return {f"{name}.weight": values}
    return {name: values}


def save_gguf(model: PreTrainedModel, spec: Spec, path: Path, form: str) -> None:
    """The model as GGUF, with the types of that form."""
    arch_name = {"ministral3": "mistral3"}.get(spec.family, spec.family)
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch_name)
    config = model.config.get_text_config()
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    writer = gguf.GGUFWriter(str(path), arch_name)
    if spec.alignment:
        writer.add_custom_alignment(spec.alignment)
    add_sizes(writer, spec, config)
    add_vocabulary(writer, spec)
    add_rope(writer, config)
    if spec.family == "qwen3moe":
        add_experts(writer, config)
    for parameter_name, parameter in model.named_parameters():
        for name, values in converted(spec, config, parameter_name, parameter.detach().numpy()).items():
            kind = kind_of(form, name, values)
            renamed = names.get_name(name, try_suffixes=(".weight", ".bias"))
            writer.add_tensor(renamed, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

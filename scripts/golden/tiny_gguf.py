"""Tiny models as GGUF, with the names, the row order and the keys of llama.cpp's converter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
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
        writer.add_rope_dimension_count(head_dim)
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


def converted(spec: Spec, config: PreTrainedConfig, name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """What the converter makes of a tensor: as a rule one, with its values put in order."""
    if spec.family == "llama" and ".q_proj." in name:
        return {name: permute(values, config.num_attention_heads)}
    if spec.family == "llama" and ".k_proj." in name:
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


def save_gguf(model: PreTrainedModel, spec: Spec, path: Path, dtype: type[np.floating[Any]]) -> None:
    """The model as GGUF; vectors and routers stay float32, as llama.cpp's converter keeps them."""
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == spec.family)
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    writer = gguf.GGUFWriter(str(path), spec.family)
    add_sizes(writer, spec, model.config)
    add_vocabulary(writer, spec)
    if spec.family == "qwen3moe":
        add_experts(writer, model.config)
    for parameter_name, parameter in model.named_parameters():
        for name, values in converted(spec, model.config, parameter_name, parameter.detach().numpy()).items():
            stored = np.float32 if values.ndim == 1 or name.endswith("mlp.gate.weight") else dtype
            renamed = names.get_name(name, try_suffixes=(".weight", ".bias"))
            writer.add_tensor(renamed, np.ascontiguousarray(values.astype(stored)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

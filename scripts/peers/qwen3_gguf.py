"""Makes GGUF files of a Qwen3 model directory, for engines that read nothing else.

    python scripts/peers/qwen3_gguf.py models/Qwen3-0.6B OUTPUT_DIRECTORY

Writes bf16.gguf, and q8_0.gguf and q4_0.gguf as llama.cpp's own quantizer makes them of it. Runs in the
environment that scripts/bench_peers.py makes (gguf, numpy, llama-cpp-python).
"""

from __future__ import annotations

import argparse
import json
import mmap
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from llama_cpp_quantize import requantize


def tensors(path: Path) -> dict[str, tuple[list[int], np.ndarray]]:
    """The shapes and the bits of a safetensors file's bfloat16 tensors."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    bits = np.frombuffer(data, np.uint16, offset=8 + size)
    return {
        name: (entry["shape"], bits[entry["data_offsets"][0] // 2 : entry["data_offsets"][1] // 2])
        for name, entry in header.items()
    }


def add_sizes(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """The hyperparameters."""
    writer.add_name("Qwen3 shape, random weights")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def add_vocabulary(writer: gguf.GGUFWriter, config: dict[str, Any], tokenizer: dict[str, Any]) -> None:
    """The tokenizer, filled up to the model's vocabulary."""
    ids = dict(tokenizer["model"]["vocab"])
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    by_id = {number: text for text, number in (ids | special).items()}
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(config["vocab_size"])]
    kinds = [gguf.TokenType.NORMAL if i in by_id else gguf.TokenType.UNUSED for i in range(config["vocab_size"])]
    for number in special.values():
        kinds[number] = gguf.TokenType.CONTROL
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def write_bf16(source: Path, path: Path) -> None:
    """The model as it is; vectors become float32, as in llama.cpp's converter."""
    config = json.loads((source / "config.json").read_text())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(str(path), "qwen3", use_temp_file=False)
    add_sizes(writer, config)
    add_vocabulary(writer, config, json.loads((source / "tokenizer.json").read_text()))
    for name, (shape, bits) in tensors(source / "model.safetensors").items():
        renamed = names.get_name(name, try_suffixes=(".weight",))
        if len(shape) == 1:
            writer.add_tensor(renamed, (bits.astype(np.uint32) << 16).view(np.float32))
        else:
            writer.add_tensor(renamed, bits.reshape(shape).view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Writes the files that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    bf16 = args.output / "bf16.gguf"
    if not bf16.exists():
        write_bf16(args.source, bf16.with_suffix(".part"))
        bf16.with_suffix(".part").rename(bf16)
    for name in ("q8_0", "q4_0"):
        path = args.output / f"{name}.gguf"
        if not path.exists():
            requantize(bf16, path.with_suffix(".part"), name)
            path.with_suffix(".part").rename(path)


if __name__ == "__main__":
    main()

"""Write go/internal/model/testdata/rope.json: inverse frequencies as transformers computes them.

Each case is the rotary part of a config.json, in its old and its new spelling, with the frequencies
and the factor of attention at a sequence of `length` positions. Run from the repository root with a
Python that has torch and transformers:

    python scripts/golden/rope_frequencies.py
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

OUT = Path(__file__).resolve().parents[2] / "go/internal/model/testdata/rope.json"

HEAD_DIM = 64
SHORT = [1.0 + 0.01 * i for i in range(HEAD_DIM // 2)]
LONG = [1.0 + 0.25 * i for i in range(HEAD_DIM // 2)]
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"short_factor": SHORT, "long_factor": LONG}
YARN = {"rope_type": "yarn", "factor": 4.0}
PARTIAL = {"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.75}

# name, rotary part of config.json, length
CASES: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("none", {"rope_theta": 5e5}, 4096),
    ("default, rope_parameters", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 4096),
    ("default, old name", {"rope_scaling": {"type": "default"}, "rope_theta": 2e4}, 4096),
    ("linear, old name", {"rope_scaling": {"type": "linear", "factor": 4.0}}, 4096),
    ("dynamic, short", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 1000),
    ("dynamic, long", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 5000),
    (
        "llama3",
        {
            "rope_theta": 5e5,
            "max_position_embeddings": 131072,
            "rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": 8192, **LLAMA3},
        },
        131072,
    ),
    ("llama3 without original length", {"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, 4096),
    (
        "llama3, rope_parameters",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "original_max_position_embeddings": 8192,
                **LLAMA3,
                "factor": 32.0,
            }
        },
        4096,
    ),
    ("yarn", {"rope_scaling": {**YARN, "original_max_position_embeddings": 512}}, 4096),
    ("yarn without original length", {"rope_scaling": YARN}, 4096),
    ("yarn, original length outside", {"rope_scaling": YARN, "original_max_position_embeddings": 256}, 4096),
    ("yarn, attention_factor", {"rope_scaling": {**YARN, "attention_factor": 1.5}}, 4096),
    ("yarn, mscale", {"rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.1}}, 4096),
    ("yarn, mscale alone", {"rope_scaling": {**YARN, "mscale": 0.7}}, 4096),
    ("yarn, betas", {"rope_scaling": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}}, 4096),
    (
        "longrope, short",
        {"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 512, **LONGROPE}},
        512,
    ),
    (
        "longrope, long",
        {"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 512, **LONGROPE}},
        513,
    ),
    ("longrope, factor", {"rope_scaling": {"rope_type": "longrope", "factor": 16.0, **LONGROPE}}, 4096),
    (
        "longrope, attention_factor",
        {"rope_scaling": {"rope_type": "longrope", "factor": 16.0, "attention_factor": 1.25, **LONGROPE}},
        4096,
    ),
    (
        "phi3, su",
        {
            "architectures": ["Phi3ForCausalLM"],
            "original_max_position_embeddings": 512,
            "rope_scaling": {"type": "su", "original_max_position_embeddings": 512, **LONGROPE},
        },
        2048,
    ),
    ("phi3, partial", {**PARTIAL, "rope_theta": 5e4}, 2048),
    (
        "phi3, partial, longrope",
        {
            **PARTIAL,
            "original_max_position_embeddings": 512,
            "rope_scaling": {"type": "longrope", "short_factor": SHORT[:24], "long_factor": LONG[:24]},
        },
        2048,
    ),
)


def main() -> None:
    """Write all cases, each with the file that a model would have."""
    cases = []
    for name, rotary, length in CASES:
        file: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": 32,
            "hidden_size": 4 * HEAD_DIM,
            "intermediate_size": 24,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 2048,
            **rotary,
        }
        kind = Phi3Config if file["architectures"] == ["Phi3ForCausalLM"] else LlamaConfig
        extra = {"pad_token_id": 0} if kind is Phi3Config else {}
        config = kind(**copy.deepcopy(file), **extra)
        rope_type = config.rope_parameters["rope_type"]
        if rope_type == "default":
            rotary_embedding = Phi3RotaryEmbedding if kind is Phi3Config else LlamaRotaryEmbedding
            inverse, attention = rotary_embedding.compute_default_rope_parameters(config)
        else:
            inverse, attention = ROPE_INIT_FUNCTIONS[rope_type](config, torch.device("cpu"), seq_len=length)
        assert inverse.dtype == torch.float32
        frequencies = [float(f"{value:.8g}") for value in inverse.tolist()]
        cases.append(
            {"name": name, "config": file, "length": length, "inv_freq": frequencies, "attention_factor": attention}
        )
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUT.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Projections of tiny models as e4m3, in the two forms in which models are published."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

BLOCK = 128
LARGEST = torch.finfo(torch.float8_e4m3fn).max

# The quantization_config that DeepSeek and Qwen publish, and compressed-tensors' for a scale of each row.
CONFIGS = {
    "block": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [BLOCK, BLOCK],
    },
    "channel": {
        "config_groups": {
            "group_0": {
                "input_activations": {"dynamic": True, "num_bits": 8, "strategy": "token", "type": "float"},
                "targets": ["Linear"],
                "weights": {
                    "block_structure": None,
                    "dynamic": False,
                    "num_bits": 8,
                    "strategy": "channel",
                    "symmetric": True,
                    "type": "float",
                },
            }
        },
        "format": "float-quantized",
        "ignore": ["lm_head"],
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    },
}


def spread(scales: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The scale of each value."""
    if scales.shape == (like.shape[0], 1):
        return scales.expand_as(like)
    rows, cols = like.shape
    return scales.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :cols]


def quantize(values: torch.Tensor, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales."""
    if form == "channel":
        scales = (values.abs().amax(1, keepdim=True) / LARGEST).to(torch.bfloat16)
    else:
        rows, cols = (-(-size // BLOCK) for size in values.shape)
        scales = torch.stack(
            [block.abs().max() / LARGEST for row in values.split(BLOCK) for block in row.split(BLOCK, 1)]
        ).reshape(rows, cols)
    codes = (values / spread(scales.float(), values)).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return codes, scales


def round_model(model: PreTrainedModel, form: str) -> dict[str, torch.Tensor]:
    """Rounds the projections to what the codes and scales stand for, and returns those by their names in files."""
    stored = {}
    for name, parameter in model.named_parameters():
        if not name.endswith("_proj.weight"):
            continue
        codes, scales = quantize(parameter, form)
        stored[name] = codes
        stored[name + ("_scale" if form == "channel" else "_scale_inv")] = scales
        parameter.copy_(codes.float() * spread(scales.float(), parameter))
    return stored


def store(path: Path, form: str, stored: dict[str, torch.Tensor]) -> None:
    """Puts codes and scales into a model that was saved without."""
    file, config = path / "model.safetensors", path / "config.json"
    save_file(load_file(file) | stored, file, metadata={"format": "pt"})
    fields = json.loads(config.read_text(encoding="utf-8")) | {"quantization_config": CONFIGS[form]}
    config.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")

"""Quantization of the tiny models' weights: as the gguf package does it, and two K types that it only reads."""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import quants

SUPER = 256  # values in a block of the K types


def blocks_of(values: np.ndarray, size: int) -> np.ndarray:
    """[super blocks, sub-blocks, size] of the values in the order of their rows."""
    return values.astype(np.float32).reshape(-1, SUPER // size, size)


def halves(values: np.ndarray) -> np.ndarray:
    """float16 values as bytes, two a row."""
    return values.astype(np.float16).reshape(-1, 1).view(np.uint8)


def over(values: np.ndarray, divisors: np.ndarray) -> np.ndarray:
    """The quotients, 0 where the divisor is."""
    return np.divide(
        values, divisors, out=np.zeros(np.broadcast_shapes(values.shape, divisors.shape)), where=divisors != 0
    )


def q6_k(values: np.ndarray) -> np.ndarray:
    """Blocks of Q6_K: 16 scales of 8 bits, and codes of 6 bits from -32."""
    x = blocks_of(values, 16)
    wanted = np.abs(x).max(axis=2) / 31
    d = (wanted.max(axis=1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    scales = np.clip(np.rint(over(wanted, d)), 0, 127)
    codes = np.clip(np.rint(over(x, (d * scales)[:, :, None])), -32, 31) + 32
    codes = codes.reshape(-1, 2, 4, 32).astype(np.uint8)  # two halves of four rows of 32
    low, high = codes & 15, codes >> 4
    ql = np.concatenate([low[:, :, :2] | low[:, :, 2:] << 4], axis=2).reshape(-1, 128)
    qh = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(-1, 64)
    return np.concatenate([ql, qh, scales.astype(np.int8).view(np.uint8), halves(d)], axis=1)


def q4_k(values: np.ndarray) -> np.ndarray:
    """Blocks of Q4_K: 8 scales and 8 minima of 6 bits, and codes of 4 bits."""
    x = blocks_of(values, 32)
    lowest = np.maximum(-x.min(axis=2), 0)
    spread = (x.max(axis=2) + lowest) / 15
    d = (spread.max(axis=1, keepdims=True) / 63).astype(np.float16).astype(np.float32)
    dmin = (lowest.max(axis=1, keepdims=True) / 63).astype(np.float16).astype(np.float32)
    scales = np.clip(np.rint(over(spread, d)), 0, 63).astype(np.uint8)
    minima = np.clip(np.rint(over(lowest, dmin)), 0, 63).astype(np.uint8)
    codes = over(x + (dmin * minima)[:, :, None], (d * scales)[:, :, None])
    codes = np.clip(np.rint(codes), 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    packed = np.concatenate(
        [
            scales[:, :4] | scales[:, 4:] >> 4 << 6,
            minima[:, :4] | minima[:, 4:] >> 4 << 6,
            scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4,
        ],
        axis=1,
    )
    qs = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([halves(d), halves(dmin), packed, qs], axis=1)


ENCODERS: dict[Kind, Callable[[np.ndarray], np.ndarray]] = {Kind.Q6_K: q6_k, Kind.Q4_K: q4_k}


def kind_of(form: str, name: str, values: np.ndarray) -> Kind:
    """How a form of a model stores a tensor: vectors and routers as float32, as llama.cpp does.

    q4_k_m mixes types as llama.cpp's recipe of that name does.
    """
    if values.ndim == 1 or name.endswith("mlp.gate.weight"):
        return Kind.F32
    if form != "q4_k_m":
        return Kind[form.upper()]
    if values.shape[-1] % SUPER:
        return Kind.Q5_0
    if any(part in name for part in ("v_proj", "down_proj", "embed_tokens", "lm_head")):
        return Kind.Q6_K
    return Kind.Q4_K


def quantize(values: np.ndarray, kind: Kind) -> np.ndarray:
    """The bytes of a tensor, row by row, or its float values."""
    if kind not in ENCODERS:
        return quants.quantize(np.ascontiguousarray(values), kind)
    _, size = gguf.GGML_QUANT_SIZES[kind]
    width = values.shape[-1] // SUPER * size
    return ENCODERS[kind](values).reshape(*values.shape[:-1], width)


def rounded(values: np.ndarray, kind: Kind) -> np.ndarray:
    """What the stored values stand for."""
    return quants.dequantize(quantize(values, kind), kind).reshape(values.shape)

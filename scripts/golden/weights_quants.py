"""Write go/internal/weights/testdata/quants.bin.gz: GGUF blocks and the values they stand for.

The reference is `gguf.quants.dequantize` of the gguf Python package. The file is gzip over a
sequence of records, little-endian: u32 ggml type id, u32 values per row, u32 bytes per row, the
row's bytes, the row's float32 values. Run from the repository root with a Python that has gguf
and numpy:

    python scripts/golden/weights_quants.py
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

OUT = Path(__file__).resolve().parents[2] / "go/internal/weights/testdata/quants.bin.gz"

# The byte offsets of the float16 scales in a block of each type.
SCALES: dict[str, tuple[int, ...]] = {
    "F32": (),
    "F16": (),
    "BF16": (),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}

# Zero of both signs, one, the smallest subnormal, the largest subnormal, the smallest normal, and
# the largest value of both signs.
SCALE_VALUES = (0x0000, 0x8000, 0x3C00, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF)


def row_bytes(name: str, rng: np.random.Generator) -> np.ndarray:
    """One row of ten blocks.

    All-zero codes, all-one codes, then random codes; scales walk SCALE_VALUES first.
    """
    size = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, size=(10, size), dtype=np.uint8)
    blocks[0] = 0x00
    blocks[1] = 0xFF
    for number, block in enumerate(blocks):
        for place, offset in enumerate(SCALES[name]):
            if number < len(SCALE_VALUES):
                scale = SCALE_VALUES[(number + 3 * place) % len(SCALE_VALUES)]
            else:
                scale = int(np.float16(rng.normal() * 0.05).view(np.uint16))
            block[offset : offset + 2] = np.frombuffer(struct.pack("<H", scale), dtype=np.uint8)
    return blocks.reshape(-1)


def float_row(name: str, rng: np.random.Generator) -> np.ndarray:
    """A row of a plain type: every float16 exponent and special value, or random bits."""
    if name == "F32":
        bits = rng.integers(0, 1 << 32, size=64, dtype=np.uint64).astype(np.uint32)
        bits[:4] = (0, 0x80000000, 0x7F800000, 0x00000001)
        return bits.view(np.uint8)
    if name == "F16":
        bits = np.concatenate([np.arange(0, 1 << 16, 37), [0x7C00, 0xFC00, 0x7E00, 0x03FF, 0x0001]])
        return bits.astype(np.uint16).view(np.uint8)
    bits = rng.integers(0, 1 << 16, size=64).astype(np.uint16)
    bits[:4] = (0, 0x8000, 0x7F80, 0x0001)
    return bits.view(np.uint8)


def main() -> None:
    """Write one record for each type."""
    rng = np.random.default_rng(20250607)
    out = bytearray()
    for name in SCALES:
        qtype = GGMLQuantizationType[name]
        raw = row_bytes(name, rng) if SCALES[name] else float_row(name, rng)
        with np.errstate(all="ignore"):
            values = dequantize(raw.reshape(1, -1), qtype).astype("<f4").reshape(-1)
        out += struct.pack("<III", int(qtype), values.size, raw.size) + raw.tobytes() + values.tobytes()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_bytes(gzip.compress(bytes(out), 9, mtime=0))
    print(f"{OUT.name}: {len(SCALES)} types, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()

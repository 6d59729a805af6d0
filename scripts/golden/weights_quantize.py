"""Write go/internal/weights/testdata/quantize.bin.gz: values and the GGUF blocks they become.

The reference is `gguf.quants.quantize` of the gguf Python package. The file is gzip over a
sequence of records as weights_quants.py has them, little-endian: u32 ggml type id, u32 values,
u32 bytes of blocks, the blocks, the float32 values that were quantized. Run from the repository
root with a Python that has gguf and numpy:

    python scripts/golden/weights_quantize.py
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

OUT = Path(__file__).resolve().parents[2] / "go/internal/weights/testdata/quantize.bin.gz"
GROUP = 32


def groups(rng: np.random.Generator) -> np.ndarray:
    """Groups that look like weights, as bfloat16 and float32, and groups at the edges."""
    wide = (rng.normal(size=(64, GROUP)) * 0.05).astype(np.float32)
    short = (wide.view(np.uint32) & 0xFFFF0000).view(np.float32)
    halves = np.arange(-16, 16, dtype=np.float32).reshape(1, GROUP) / 2
    exact = np.linspace(-127, 127, 255, dtype=np.float32)[::8].reshape(1, GROUP) * 0.5
    edges = np.zeros((9, GROUP), dtype=np.float32)
    edges[1] = -0.0
    edges[2, 7], edges[2, 9] = 1.0, -1.0  # equal magnitudes: the first counts
    edges[3, 7], edges[3, 9] = -1.0, 1.0
    edges[4, 31] = -3e4
    edges[5] = 1e-6 * halves  # scales that float16 holds as subnormal numbers
    edges[6] = 1e-9 * halves  # scales that float16 rounds to zero
    edges[7] = 1e-30 * halves
    edges[8] = rng.integers(-500, 500, GROUP) * 1000
    return np.concatenate([wide, short, halves, exact, edges])


def main() -> None:
    """Write one record for each type."""
    values = groups(np.random.default_rng(20250711))
    out = bytearray()
    for qtype in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
        blocks = quantize(values, qtype)
        out += (
            struct.pack("<III", int(qtype), values.size, blocks.size)
            + blocks.tobytes()
            + values.astype("<f4").tobytes()
        )
    OUT.write_bytes(gzip.compress(bytes(out), 9, mtime=0))
    print(f"{OUT.name}: {len(values)} groups, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()

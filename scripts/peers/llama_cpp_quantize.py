"""Other forms of a GGUF file, made by llama.cpp's own quantizer."""

from __future__ import annotations

from pathlib import Path

import llama_cpp as lib

KINDS = {
    "bf16": lib.LLAMA_FTYPE_MOSTLY_BF16,
    "q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0,
}


def requantize(source: Path, path: Path, kind: str) -> None:
    """Another form of a model, with the types that llama.cpp chooses for it."""
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = KINDS[kind], True
    if lib.llama_model_quantize(str(source).encode(), str(path).encode(), params) != 0:
        raise SystemExit(f"llama.cpp could not quantize {source}")

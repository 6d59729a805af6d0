"""Cases from public bug reports about model files, by their numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from minisgl.llm import LLM

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
INDEX = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}


def shorten(file: Path) -> None:
    """Cut the last byte off."""
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: shorten(d / "model.safetensors"), ["model.safetensors", "tensor", "1 too few"]),
        (lambda d: (d / "model.safetensors").write_bytes(POINTER), ["model.safetensors", "Git LFS pointer"]),
        (lambda d: (d / "model.safetensors").write_bytes((1 << 63).to_bytes(8, "little")), ["header", "longer than"]),
        (lambda d: (d / "model.safetensors.index.json").write_text(json.dumps(INDEX)), ["missing shard", "00002"]),
        (lambda d: (d / "model.safetensors").unlink(), ["no model.safetensors"]),
        (lambda d: (d / "tokenizer.json").unlink(), ["no tokenizer.json"]),
        (lambda d: shorten(d / "f16.gguf"), ["f16.gguf", "tensor", "cut short"]),
    ],
    ids=["cut", "pointer", "header", "shard", "weights", "tokenizer", "gguf"],
)
def test_a38_damaged_models(tmp_path: Path, tiny: str, damage: Callable[[Path], object], words: list[str]) -> None:
    """A cut or missing file is a ValueError or a FileNotFoundError that names it, without a trace of Go."""
    model = tmp_path / "model"
    shutil.copytree(tiny, model)
    damage(model)
    path = model / "f16.gguf" if "f16.gguf" in words else model
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        LLM(str(path), num_page_override=64)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "panic" not in text
    assert "goroutine" not in text

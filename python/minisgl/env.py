"""Settings from MINISGL_* environment variables, read once when imported."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

_SIZE = re.compile(r"(\d+)\s*([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_bool(text: str) -> bool:
    """Reads 1/true/yes or 0/false/no in any case."""
    word = text.strip().lower()
    if word in ("1", "true", "yes"):
        return True
    if word in ("0", "false", "no", ""):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def parse_size(text: str) -> int:
    """Reads a number of bytes: 1073741824, 512M, 1G, 1GB."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    return int(match[1]) * _UNITS[match[2].upper()]


def _setting(name: str, default: T, parse: Callable[[str], T]) -> T:
    def read() -> T:
        text = os.environ.get(f"MINISGL_{name}")
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            warnings.warn(f"MINISGL_{name}: {error}; {default!r} is used", stacklevel=2)
            return default

    return field(default_factory=read)


@dataclass(frozen=True)
class Env:
    """The settings; a value that can't be read gives a warning and the default."""

    SHELL_MAX_TOKENS: int = _setting("SHELL_MAX_TOKENS", 2048, int)
    SHELL_TOP_K: int = _setting("SHELL_TOP_K", -1, int)
    SHELL_TOP_P: float = _setting("SHELL_TOP_P", 1.0, float)
    SHELL_TEMPERATURE: float = _setting("SHELL_TEMPERATURE", 0.6, float)
    FLASHINFER_USE_TENSOR_CORES: bool | None = _setting("FLASHINFER_USE_TENSOR_CORES", None, parse_bool)
    DISABLE_OVERLAP_SCHEDULING: bool = _setting("DISABLE_OVERLAP_SCHEDULING", False, parse_bool)
    PYNCCL_MAX_BUFFER_SIZE: int = _setting("PYNCCL_MAX_BUFFER_SIZE", 2**30, parse_size)


ENV = Env()

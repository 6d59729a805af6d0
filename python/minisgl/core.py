"""Sampling parameters: how a request's tokens are chosen and when it ends."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

_MAX_SEED = 2**64 - 1


@dataclass(slots=True)
class SamplingParams:
    """How a request's tokens are chosen and when it ends.

    Attributes:
        temperature: 0 takes the likeliest token; else logits are divided by it.
        top_k: Keep the k likeliest tokens; -1 or 0 keeps all.
        top_p: Then keep the smallest set with this probability; 1 keeps all.
        ignore_eos: Go on past an end-of-sequence token.
        max_tokens: Tokens to generate at most. The context's length also ends a request.
        min_p: Then drop tokens below this share of the likeliest one; 0 drops none.
        seed: Makes random choices repeatable; None takes the engine's seed and the
            request's number.

    Raises:
        TypeError: A value of the wrong type.
        ValueError: A value out of range. The message names the field.
    """

    temperature: float = 0.0
    top_k: int = -1
    top_p: float = 1.0
    ignore_eos: bool = False
    max_tokens: int = 1024
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        self.temperature = as_float("temperature", self.temperature)
        self.top_k = as_int("top_k", self.top_k)
        self.top_p = as_float("top_p", self.top_p)
        self.ignore_eos = as_bool("ignore_eos", self.ignore_eos)
        self.max_tokens = as_int("max_tokens", self.max_tokens)
        self.min_p = as_float("min_p", self.min_p)
        if self.seed is not None:
            self.seed = as_int("seed", self.seed)
        self._check_ranges()

    def _check_ranges(self) -> None:
        check(self.temperature >= 0, "temperature", "at least 0", self.temperature)
        check(self.top_k >= -1, "top_k", "-1 (off), 0 (off) or more", self.top_k)
        check(0 < self.top_p <= 1, "top_p", "in (0, 1]", self.top_p)
        check(self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens)
        check(0 <= self.min_p < 1, "min_p", "in [0, 1)", self.min_p)
        seed_fits = self.seed is None or 0 <= self.seed <= _MAX_SEED
        check(seed_fits, "seed", "None or from 0 to 2**64 - 1", self.seed)

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the likeliest one."""
        return self.temperature == 0 or self.top_k == 1


def as_int(name: str, value: Any) -> int:
    """Returns an int for an int or what acts as one (numpy's), never for a bool."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be an int, got {value!r}")


def as_float(name: str, value: Any) -> float:
    """Returns a finite float for any real number, never for a bool or a string."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    check(math.isfinite(number), name, "a finite number", value)
    return number


def as_bool(name: str, value: Any) -> bool:
    """Returns the bool, or refuses what isn't one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return value


def check(holds: bool, name: str, must_be: str, value: Any) -> None:
    """Raises a ValueError that names the field unless the rule holds."""
    if not holds:
        raise ValueError(f"{name} must be {must_be}, got {value!r}")

"""Requests that were recorded, with their arrival times and lengths, in mini-sglang's terms."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

_MAX_TRIES = 64
_LONGEST_CHARACTER = 4  # in tokens


class TextTokenizer(Protocol):
    """What of a tokenizer is needed: LLM's has it, and so have those of transformers."""

    vocab_size: int

    def encode(self, text: str, /, *, add_special_tokens: bool) -> list[int]:
        """Returns the ids of a text."""

    def decode(self, ids: list[int], /) -> str:
        """Returns the text of ids."""


@dataclass(frozen=True)
class BenchmarkTrace:
    """A recorded request.

    Attributes:
        timestamp: When it came, in seconds.
        message: The prompt.
        output_length: Tokens of its answer.
        input_length: Tokens of the prompt, if known.
    """

    timestamp: float
    message: str
    output_length: int
    input_length: int | None = None


def generate_prompt(tokenizer: TextTokenizer, n: int, random: Random | None = None) -> str:
    """Returns a random text that encodes to exactly n tokens.

    Raises:
        ValueError: None was found; few tokenizers fail for more than a few tokens.
    """
    random = random or Random()
    ids: list[int] = []
    for _ in range(_MAX_TRIES):
        ids += [random.randint(0, tokenizer.vocab_size // 2) for _ in range(n - len(ids))]
        text = tokenizer.decode(ids)
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == n:
            return text
        if len(ids) > n:  # a cut inside a character would only make it longer again
            ids = ids[: max(n - random.randrange(_LONGEST_CHARACTER), 0)]
    raise ValueError(f"no text of exactly {n} tokens was found in {_MAX_TRIES} tries")


def read_qwen_trace(
    path: str | os.PathLike[str], tokenizer: TextTokenizer, n: int | None = None, dummy: bool = False
) -> list[BenchmarkTrace]:
    """Reads a trace of Qwen's users: JSON lines with timestamp (s), input_length, output_length.

    Args:
        path: Of the file.
        tokenizer: Makes prompts of the recorded lengths.
        n: How many lines to read; None is all.
        dummy: Whether all prompts are beginnings of one text, which is quick to make but
            lets a prefix cache find nearly all of each.
    """
    return _read(path, tokenizer, n, dummy, seconds=1.0)


def read_mooncake_trace(
    path: str | os.PathLike[str], tokenizer: TextTokenizer, n: int | None = None, dummy: bool = False
) -> list[BenchmarkTrace]:
    """Reads a trace of Mooncake's: as ``read_qwen_trace``, but its timestamps are milliseconds."""
    return _read(path, tokenizer, n, dummy, seconds=0.001)


def scale_traces(traces: Sequence[BenchmarkTrace], scale: float) -> list[BenchmarkTrace]:
    """Returns traces that begin at 0 with their gaps scaled, in order; below 1 is faster."""
    if not traces:
        return []
    first = min(trace.timestamp for trace in traces)
    scaled = [replace(trace, timestamp=(trace.timestamp - first) * scale) for trace in traces]
    return sorted(scaled, key=lambda trace: trace.timestamp)


def _read(
    path: str | os.PathLike[str], tokenizer: TextTokenizer, n: int | None, dummy: bool, seconds: float
) -> list[BenchmarkTrace]:
    records: list[dict[str, Any]] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if n is not None and len(records) == n:
                break
            if line.strip():
                records.append(_record(line, f"{os.fspath(path)}:{number}"))
    longest = max((record["input_length"] for record in records), default=0)
    prompt_of = _beginnings(tokenizer, longest) if dummy else lambda n: generate_prompt(tokenizer, n)
    return [
        BenchmarkTrace(
            timestamp=record["timestamp"] * seconds,
            message=prompt_of(record["input_length"]),
            output_length=record["output_length"],
            input_length=record["input_length"],
        )
        for record in records
    ]


def _record(line: str, place: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(line)
    for name in ("timestamp", "input_length", "output_length"):
        if not isinstance(record, dict) or not isinstance(record.get(name), (int, float)):
            raise ValueError(f"{place}: a line needs the number {name}, got {line.strip()[:80]}")
    return record


def _beginnings(tokenizer: TextTokenizer, longest: int) -> Callable[[int], str]:
    ids = tokenizer.encode(generate_prompt(tokenizer, longest), add_special_tokens=False)
    return lambda n: tokenizer.decode(ids[:n])

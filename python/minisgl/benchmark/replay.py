"""Sends prompts or traces through an ``openai.AsyncOpenAI`` client, in mini-sglang's terms."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from minisgl.benchmark.traces import BenchmarkTrace, TextTokenizer

# How long after the call a trace's first request is sent.
_LEAD_SECONDS = 1.0
_UNSET: Any = object()

T = TypeVar("T")


@dataclass
class RawResult:
    """One request: tics are the times of sending and of each chunk, by time.perf_counter."""

    input_len: int | None
    output_len: int
    message: str
    tics: list[float]


@dataclass
class BenchOneResult:
    """A RawResult with the length of its prompt."""

    tics: list[float]
    input_len: int
    output_len: int

    def as_json(self) -> list[float]:
        """Returns input_len, output_len and the tics in one list."""
        return [self.input_len, self.output_len, *self.tics]

    @staticmethod
    def from_json(raw: list[float]) -> BenchOneResult:
        """Reads what as_json gave."""
        return BenchOneResult(raw[2:], int(raw[0]), int(raw[1]))


@dataclass
class BenchmarkResult:
    """All requests of a benchmark."""

    raw_data: list[BenchOneResult]

    def as_json(self) -> list[list[float]]:
        """Returns a list for each request."""
        return [result.as_json() for result in self.raw_data]

    @staticmethod
    def from_json(raw: list[list[float]]) -> BenchmarkResult:
        """Reads what as_json gave."""
        return BenchmarkResult([BenchOneResult.from_json(item) for item in raw])


async def get_model_name(client: Any) -> str:
    """Returns the name of the first model that a server lists."""
    async for model in client.models.list():
        return str(model.id)
    raise ValueError("the server lists no model")


async def benchmark_one(
    client: Any,
    prompt: str,
    output_length: int,
    model: str,
    *,
    pbar: bool = True,
    extra_body: dict[str, Any] | None = None,
    input_length: int | None = None,
) -> RawResult:
    """Sends one chat request and notes when each chunk comes.

    Args:
        client: An ``openai.AsyncOpenAI``.
        prompt: The user's message.
        output_length: Tokens of the answer; an end-of-sequence token does not end it.
        model: The model's name.
        pbar: Whether to show how many tokens have come.
        extra_body: What else the request holds.
        input_length: Tokens of the prompt, if known.
    """
    body = {"ignore_eos": True, "top_k": 1, **(extra_body or {})}
    with _bar(output_length if pbar else None, "Tokens") as bar:
        tics = [time.perf_counter()]
        chunks = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": prompt}],
            stream=True,
            max_tokens=output_length,
            temperature=0.0,
            extra_body=body,
        )
        async for _ in chunks:
            tics.append(time.perf_counter())
            bar.update()
    return RawResult(input_length, output_length, prompt, tics)


async def benchmark_one_batch(
    client: Any,
    prompts: Sequence[str],
    output_lengths: int | Sequence[int],
    model: str,
    *,
    extra_body: dict[str, Any] | None = None,
    input_lengths: Sequence[int | None] | None = None,
    pbar: bool = True,
) -> list[RawResult]:
    """Sends all prompts at once; output_lengths is one number for all or one for each."""
    lengths = [output_lengths] * len(prompts) if isinstance(output_lengths, int) else list(output_lengths)
    known = [None] * len(prompts) if input_lengths is None else list(input_lengths)
    with _bar(len(prompts) if pbar else None, "Requests done") as bar:
        return await _all(
            [
                benchmark_one(client, prompt, length, model, pbar=False, extra_body=extra_body, input_length=tokens)
                for prompt, length, tokens in zip(prompts, lengths, known, strict=True)
            ],
            bar,
        )


async def benchmark_trace(
    client: Any, msgs: Sequence[BenchmarkTrace], model: str, *, pbar: bool = True
) -> list[RawResult]:
    """Sends each request of a trace at its time; the first goes out after a second."""
    first = min((trace.timestamp for trace in msgs), default=0.0)
    start = time.perf_counter() + _LEAD_SECONDS

    async def send(trace: BenchmarkTrace) -> RawResult:
        await asyncio.sleep(start + trace.timestamp - first - time.perf_counter())
        return await benchmark_one(
            client, trace.message, trace.output_length, model, pbar=False, input_length=trace.input_length
        )

    with _bar(len(msgs) if pbar else None, "Requests done") as bar:
        return await _all([send(trace) for trace in msgs], bar)


def process_benchmark_results(
    raw_data: Sequence[RawResult], tokenizer: TextTokenizer | None = _UNSET
) -> BenchmarkResult | None:
    """Prints average, P50, P90, P99 and maximum of TTFT, TPOT and E2E, and the throughput.

    A chunk counts as a token, and so does the sending of a request, which is how
    mini-sglang counts.

    Returns:
        What can be stored, if a tokenizer is given, which counts the tokens of prompts
        whose length is not known.
    """
    if not raw_data:
        raise ValueError("there are no results")
    tics = [result.tics for result in raw_data]
    answered = [t for t in tics if len(t) > 1]
    tokens = sum(len(t) for t in tics)
    seconds = max(t[-1] for t in tics) - min(t[0] for t in tics)
    print(f"Num requests: #{len(raw_data)}, Num tokens: #{tokens}")
    print(_figures("TTFT", [1000 * (t[1] - t[0]) for t in answered], "ms"))
    print(_figures("TPOT", [1000 * (b - a) for t in answered for a, b in pairwise(t[1:])], "ms"))
    print(_figures("E2E", [t[-1] - t[0] for t in answered], "s"))
    print(f"Duration: {seconds:.2f} s")
    if seconds > 0:
        print(f"Throughput: {tokens / seconds:.2f} token/s, {len(raw_data) / seconds:.4f} req/s")
    if tokenizer is _UNSET or tokenizer is None:
        return None
    return BenchmarkResult([BenchOneResult(r.tics, _input_len(r, tokenizer), r.output_len) for r in raw_data])


def _input_len(result: RawResult, tokenizer: TextTokenizer) -> int:
    if result.input_len is not None:
        return result.input_len
    return len(tokenizer.encode(result.message, add_special_tokens=False))


def _figures(name: str, values: list[float], unit: str) -> str:
    if not values:
        return f"{name}: nothing was measured"
    ordered = sorted(values)
    at = {f"p{percent}": ordered[len(ordered) * percent // 100] for percent in (50, 90, 99)}
    spread = ", ".join(f"{label}: {value:.4f} {unit}" for label, value in {**at, "max": ordered[-1]}.items())
    return f"{name}: {sum(values) / len(values):.4f} {unit} ({spread})"


async def _all(requests: list[Awaitable[T]], bar: Any) -> list[T]:
    async def counted(request: Awaitable[T]) -> T:
        result = await request
        bar.update()
        return result

    return list(await asyncio.gather(*(counted(request) for request in requests)))


def _bar(total: int | None, label: str) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=label, disable=total is None)

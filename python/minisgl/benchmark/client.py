"""Online benchmark: a server's latency when requests come at a given rate.

``python -m minisgl.benchmark.client --rate 8`` sends streaming chat requests to a server
(``python -m minisgl``, or another one that speaks OpenAI's protocol). Requests come by a
Poisson process, whether or not earlier ones have been answered. ``--rates 0.5,1,2,4`` goes
through several rates, and ``--plot FILE.png`` draws what comes of it.

The names of mini-sglang's benchmark library are here too; see ``replay`` and ``traces``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from minisgl.benchmark.replay import (
    BenchmarkResult,
    BenchOneResult,
    RawResult,
    benchmark_one,
    benchmark_one_batch,
    benchmark_trace,
    get_model_name,
    process_benchmark_results,
)
from minisgl.benchmark.summary import Summary, format_summary, format_sweep, plot_sweep, summarize
from minisgl.benchmark.traces import (
    BenchmarkTrace,
    generate_prompt,
    read_mooncake_trace,
    read_qwen_trace,
    scale_traces,
)

if TYPE_CHECKING:
    import httpx

__all__ = [
    "BenchOneResult",
    "BenchmarkResult",
    "BenchmarkTrace",
    "RawResult",
    "RequestResult",
    "benchmark_one",
    "benchmark_one_batch",
    "benchmark_trace",
    "generate_prompt",
    "get_model_name",
    "main",
    "one_request",
    "process_benchmark_results",
    "read_mooncake_trace",
    "read_qwen_trace",
    "run",
    "scale_traces",
]

DEFAULT_URL = "http://127.0.0.1:1919"
_CHAT_PATH = "/v1/chat/completions"
_READY_SECONDS = 300.0
_WARM_UP_TOKENS = 8
_WORDS = ("river", "stone", "paper", "garden", "winter", "engine", "music", "letter", "window", "market", "forest")


@dataclass
class RequestResult:
    """What one request measured; times are seconds from when it was sent.

    Attributes:
        ttft: To the first piece of text.
        latency: To the end.
        chunk_times: To each piece of text.
        output_chars: Characters of all pieces.
        error: Why the request failed; None if it did not.
    """

    ttft: float = 0.0
    latency: float = 0.0
    chunk_times: list[float] = field(default_factory=list)
    output_chars: int = 0
    error: str | None = None

    @property
    def tpot(self) -> float | None:
        """The mean gap between pieces after the first; None if there is no gap."""
        gaps = len(self.chunk_times) - 1
        return (self.chunk_times[-1] - self.chunk_times[0]) / gaps if gaps > 0 else None


async def one_request(client: httpx.AsyncClient, url: str, prompt: str, max_tokens: int) -> RequestResult:
    """Sends one chat request, reads its answer as it comes, and times each piece of it.

    Args:
        client: Sends it.
        url: Of the endpoint, with its path.
        prompt: The user's message.
        max_tokens: Length of the answer; an end-of-sequence token does not end it.

    Raises:
        RuntimeError: The server refused the request, told of an error, or broke off.
        httpx.HTTPError: The connection failed.
    """
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
    }
    result = RequestResult()
    complete = False
    start = time.perf_counter()
    async with client.stream("POST", url, json=body) as response:
        if response.status_code != 200:
            text = (await response.aread()).decode(errors="replace")
            raise RuntimeError(f"the server answered {response.status_code}: {text.strip()[:200]}")
        async for line in response.aiter_lines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                complete = True
                continue
            content = _content(data)
            if content:
                now = time.perf_counter() - start
                if not result.chunk_times:
                    result.ttft = now
                result.chunk_times.append(now)
                result.output_chars += len(content)
    result.latency = time.perf_counter() - start
    if not complete:
        raise RuntimeError("the answer broke off: it has no [DONE]")
    return result


def _content(data: str) -> str | None:
    chunk = json.loads(data)
    if "error" in chunk:
        raise RuntimeError(f"the server told of an error: {chunk['error']}")
    choices = chunk["choices"]
    return choices[0]["delta"].get("content") if choices else None


async def run(
    url: str = DEFAULT_URL,
    num_requests: int = 256,
    rate: float = 8.0,
    max_tokens: int = 256,
    seed: int = 0,
    input_words: int = 32,
) -> tuple[list[RequestResult], float]:
    """Sends requests by a Poisson process and waits for all answers.

    Each request has a deadline from the start on, so that a late one does not delay those
    after it. A warm-up request goes before.

    Args:
        url: Of the server, with or without the endpoint's path.
        num_requests: Requests to send.
        rate: Requests a second on average; infinity sends all at once.
        max_tokens: Length of each answer.
        seed: Of prompts and gaps; the same seed sends the same.
        input_words: Words of each prompt.

    Returns:
        The results, in the order of sending, and the seconds from the start to the last
        answer. Requests that failed have an error.
    """
    import httpx

    random = Random(seed)
    prompts = [make_prompt(random, input_words) for _ in range(num_requests + 1)]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:
        endpoint = chat_url(url)
        await one_request(client, endpoint, prompts.pop(), min(max_tokens, _WARM_UP_TOKENS))
        start = time.perf_counter()
        deadline, tasks = start, []
        for i, prompt in enumerate(prompts):
            if i > 0:
                deadline += random.expovariate(rate) if rate != float("inf") else 0.0
            await asyncio.sleep(deadline - time.perf_counter())
            tasks.append(asyncio.create_task(_settle(client, endpoint, prompt, max_tokens)))
        results = list(await asyncio.gather(*tasks))
        return results, time.perf_counter() - start


async def _settle(client: httpx.AsyncClient, url: str, prompt: str, max_tokens: int) -> RequestResult:
    """Is one_request, with its failure as a result."""
    import httpx

    try:
        return await one_request(client, url, prompt, max_tokens)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, httpx.HTTPError) as error:
        return RequestResult(error=f"{type(error).__name__}: {error}")


def make_prompt(random: Random, words: int) -> str:
    """Returns a prompt that shares no beginning with another one's."""
    first = f"{random.getrandbits(64):016x}"
    return " ".join([first, *random.choices(_WORDS, k=words - 1)])


def chat_url(url: str) -> str:
    """Returns the chat endpoint's URL for a server's, with or without a part of the path."""
    base = url.rstrip("/").removesuffix(_CHAT_PATH).removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"the URL must begin with http:// or https://, got {url!r}")
    return base + _CHAT_PATH


async def wait_until_ready(url: str, seconds: float) -> None:
    """Waits until a server has loaded its model.

    Raises:
        RuntimeError: It has not after so many seconds.
    """
    import httpx

    health = chat_url(url).removesuffix(_CHAT_PATH) + "/health"
    deadline = time.monotonic() + seconds
    async with httpx.AsyncClient(timeout=5.0) as client:
        while True:
            try:
                reason = f"it answers {(await client.get(health)).status_code}"
                if reason in ("it answers 200", "it answers 404"):  # 404: a server without the endpoint
                    return
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server at {url} is not ready after {seconds:g} s ({reason})")
            await asyncio.sleep(0.1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m minisgl.benchmark.client",
        description="Measures a server's latency when requests come at a given rate.",
    )
    add = parser.add_argument
    add("--url", default=DEFAULT_URL, help="of the server (default %(default)s)")
    add("--num-requests", type=int, default=256, help="requests to send, at each rate (default %(default)s)")
    add("--rate", type=float, default=8.0, help="requests a second on average; inf: all at once (default %(default)s)")
    add("--rates", type=_rates, help="several rates, one run for each, such as 0.5,1,2,4")
    add("--max-tokens", type=int, default=256, help="length of each answer (default %(default)s)")
    add("--input-words", type=int, default=32, help="words of each prompt (default %(default)s)")
    add("--seed", type=int, default=0, help="of prompts and arrivals (default %(default)s)")
    add("--plot", type=Path, metavar="FILE", help="draw P99 latencies over the rate, as .png, .svg or .pdf")
    add("--json", action="store_true", help="print one JSON object for each rate instead")
    add("--ready-timeout", type=float, default=_READY_SECONDS, help="seconds to wait for the server")
    return parser


def _rates(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


async def _measure(parsed: argparse.Namespace) -> list[Summary]:
    await wait_until_ready(parsed.url, parsed.ready_timeout)
    summaries = []
    for i, rate in enumerate(parsed.rates or [parsed.rate]):
        # A seed for each rate: no run finds the last one's prompts in a cache.
        results, seconds = await run(
            parsed.url, parsed.num_requests, rate, parsed.max_tokens, parsed.seed + i, parsed.input_words
        )
        summary = summarize(results, rate, seconds)
        print(json.dumps(summary.as_dict()) if parsed.json else format_summary(summary), flush=True)
        summaries.append(summary)
    return summaries


def _check(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    for name in ("num_requests", "max_tokens", "input_words"):
        if getattr(parsed, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(parsed, name)}")
    for rate in parsed.rates or [parsed.rate]:
        if not rate > 0:
            parser.error(f"a rate must be positive, got {rate:g}")
    if parsed.plot is not None and parsed.plot.suffix not in (".png", ".svg", ".pdf"):
        parser.error(f"--plot must end in .png, .svg or .pdf, got {parsed.plot}")


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code: 1 if no request succeeded."""
    parser = _parser()
    parsed = parser.parse_args(args)
    _check(parser, parsed)
    try:
        import httpx
    except ModuleNotFoundError:
        parser.error("httpx is missing; install it with: pip install httpx")
    try:
        if parsed.plot is not None:
            import matplotlib as _  # noqa: F401
    except ModuleNotFoundError:
        parser.error("--plot needs matplotlib; install it with: pip install matplotlib")
    try:
        summaries = asyncio.run(_measure(parsed))
    except (RuntimeError, ValueError, httpx.HTTPError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if len(summaries) > 1 and not parsed.json:
        print(format_sweep(summaries))
    if parsed.plot is not None:
        plot_sweep(summaries, parsed.plot)
        print(f"The plot is in {parsed.plot}.", file=sys.stderr)
    return 0 if any(summary.completed for summary in summaries) else 1


if __name__ == "__main__":
    sys.exit(main())

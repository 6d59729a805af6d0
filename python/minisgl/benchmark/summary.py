"""Figures of an online benchmark: a table, a sweep's curve, a plot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

_BAR_WIDTH = 40


class Measured(Protocol):
    """The part of a RequestResult that is summarized; times are in seconds."""

    ttft: float
    latency: float
    chunk_times: list[float]
    error: str | None

    @property
    def tpot(self) -> float | None:
        """The mean gap between pieces after the first."""


@dataclass(frozen=True)
class Spread:
    """Mean, median and 99th percentile; NaN where nothing was measured."""

    mean: float
    median: float
    p99: float


@dataclass(frozen=True)
class Summary:
    """What a run at one rate measured; times are in seconds.

    Attributes:
        rate: Requests a second that were asked for.
        seconds: From the start to the last answer.
        completed: Requests that succeeded; all times are theirs.
        failures: How often a request failed, by reason.
        chunks: Pieces of text that came.
        ttft: Time to the first piece.
        tpot: Mean gap between pieces after it.
        e2e: Time to the end.
    """

    rate: float
    seconds: float
    completed: int
    failures: dict[str, int]
    chunks: int
    ttft: Spread
    tpot: Spread
    e2e: Spread

    @property
    def failed(self) -> int:
        """The number of requests that failed."""
        return sum(self.failures.values())

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON: None for what has no value."""
        return {name: _jsonable(value) for name, value in asdict(self).items()}


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns a percentile by linear interpolation, as numpy does; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    rank = percent / 100 * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def spread(values: Sequence[float]) -> Spread:
    """Returns the figures of some values."""
    mean = math.fsum(values) / len(values) if values else math.nan
    return Spread(mean, percentile(values, 50), percentile(values, 99))


def summarize(results: Sequence[Measured], rate: float, seconds: float) -> Summary:
    """Returns the figures of a run. A request without any text counts as failed."""
    good = [result for result in results if result.error is None and result.chunk_times]
    reasons = (result.error or "the answer has no text" for result in results if result not in good)
    return Summary(
        rate=rate,
        seconds=seconds,
        completed=len(good),
        failures=dict(Counter(reasons)),
        chunks=sum(len(result.chunk_times) for result in good),
        ttft=spread([result.ttft for result in good]),
        tpot=spread([result.tpot for result in good if result.tpot is not None]),
        e2e=spread([result.latency for result in good]),
    )


def format_summary(summary: Summary) -> str:
    """Returns the figures as lines of text."""
    lines = [
        f"Rate {summary.rate:g} req/s: {summary.completed} requests completed, {summary.failed} failed, "
        f"{summary.seconds:.2f} s",
        f"  throughput  {summary.completed / summary.seconds:.2f} req/s, "
        f"{summary.chunks / summary.seconds:.1f} chunk/s",
        f"  {'':<10}  {'mean':>10} {'median':>10} {'P99':>10}",
        _line("TTFT (ms)", summary.ttft),
        _line("TPOT (ms)", summary.tpot),
        _line("E2E (ms)", summary.e2e),
    ]
    lines += [f"  failed {count} times: {reason}" for reason, count in summary.failures.items()]
    return "\n".join(lines)


def _line(name: str, s: Spread) -> str:
    return f"  {name:<10}  {1000 * s.mean:>10.2f} {1000 * s.median:>10.2f} {1000 * s.p99:>10.2f}"


def format_sweep(summaries: Sequence[Summary]) -> str:
    """Returns a sweep's P99 latencies as a table with bars."""
    largest = max((s.ttft.p99 for s in summaries if s.completed), default=0.0)
    lines = [f"{'req/s':>8} {'P99 TTFT ms':>12} {'P99 TPOT ms':>12}  P99 TTFT"]
    for s in summaries:
        length = round(_BAR_WIDTH * s.ttft.p99 / largest) if s.completed and largest else 0
        lines.append(f"{s.rate:>8g} {1000 * s.ttft.p99:>12.1f} {1000 * s.tpot.p99:>12.1f}  {'#' * length}")
    return "\n".join(lines)


def plot_sweep(summaries: Sequence[Summary], path: Path) -> None:
    """Draws P99 TTFT and P99 TPOT over the rate into a file; needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    rates = [s.rate for s in summaries]
    for axes, name, values in zip(
        figure.subplots(1, 2),
        ("TTFT", "TPOT"),
        ([s.ttft for s in summaries], [s.tpot for s in summaries]),
        strict=True,
    ):
        axes.plot(rates, [1000 * value.p99 for value in values], marker="o", label="P99")
        axes.plot(rates, [1000 * value.median for value in values], marker="o", linestyle="--", label="median")
        axes.set(title=name, xlabel="requests/s", ylabel="ms", ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)

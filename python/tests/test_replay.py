"""mini-sglang's benchmark library names: traces and their replay through openai's client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from server import Server

from minisgl.benchmark.client import (
    BenchmarkResult,
    BenchmarkTrace,
    BenchOneResult,
    RawResult,
    benchmark_one,
    benchmark_one_batch,
    benchmark_trace,
    generate_prompt,
    get_model_name,
    process_benchmark_results,
    read_mooncake_trace,
    read_qwen_trace,
    scale_traces,
)
from minisgl.llm import LLM


@pytest.mark.parametrize("n", [1, 2, 17, 100])
def test_a_prompt_has_exactly_so_many_tokens(llm: LLM, n: int) -> None:
    text = generate_prompt(llm.tokenizer, n, Random(n))
    assert len(llm.tokenizer.encode(text, add_special_tokens=False)) == n


def test_a_prompt_that_can_not_be_made() -> None:
    class Doubling:
        vocab_size = 10

        def encode(self, text: str, /, *, add_special_tokens: bool) -> list[int]:
            return [1, 1] * len(text)

        def decode(self, ids: list[int], /) -> str:
            return "a" * len(ids)

    with pytest.raises(ValueError, match="exactly 3 tokens"):
        generate_prompt(Doubling(), 3)


def write_trace(path: Path, times: list[float]) -> Path:
    records = [{"timestamp": t, "input_length": 10 * i + 5, "output_length": i + 1} for i, t in enumerate(times)]
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return path


def test_traces_are_read(llm: LLM, tmp_path: Path) -> None:
    qwen = read_qwen_trace(write_trace(tmp_path / "q.jsonl", [1.5, 2.5, 2.0]), llm.tokenizer, n=2)
    assert [(t.timestamp, t.input_length, t.output_length) for t in qwen] == [(1.5, 5, 1), (2.5, 15, 2)]
    for trace in qwen:
        assert len(llm.tokenizer.encode(trace.message, add_special_tokens=False)) == trace.input_length
    mooncake = read_mooncake_trace(write_trace(tmp_path / "m.jsonl", [0, 3000]), llm.tokenizer, dummy=True)
    assert [t.timestamp for t in mooncake] == [0, 3]
    assert mooncake[1].message.startswith(mooncake[0].message[:-1])


@pytest.mark.parametrize("line", ['{"timestamp": 1, "input_length": 2}', "[1]", '{"timestamp": "1"}'])
def test_a_bad_line_is_named(llm: LLM, tmp_path: Path, line: str) -> None:
    path = write_trace(tmp_path / "t.jsonl", [1])
    path.write_text(path.read_text() + line)
    with pytest.raises(ValueError, match=r"t\.jsonl:2: a line needs the number"):
        read_qwen_trace(path, llm.tokenizer)


def test_traces_are_scaled() -> None:
    traces = [BenchmarkTrace(t, str(t), 1) for t in (12.0, 10.0, 15.0)]
    assert [(t.timestamp, t.message) for t in scale_traces(traces, 0.5)] == [(0, "10.0"), (1, "12.0"), (2.5, "15.0")]
    assert scale_traces([], 2) == []


def test_replay_through_openais_client(tiny_server: Server) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=tiny_server.url + "/v1", api_key="none") as client:
            model = await get_model_name(client)
            assert model.endswith("llama-tied")
            one = await benchmark_one(client, "hello", 4, model, pbar=False, input_length=1)
            assert (one.input_len, one.output_len, one.message) == (1, 4, "hello")
            assert 4 < len(one.tics) <= 4 + 3
            batch = await benchmark_one_batch(client, ["a", "b"], [2, 3], model, pbar=False)
            assert [(r.message, r.output_len, r.input_len) for r in batch] == [("a", 2, None), ("b", 3, None)]
            traces = [BenchmarkTrace(100.2, "late", 2, 7), BenchmarkTrace(100.0, "early", 2)]
            late, early = await benchmark_trace(client, traces, model, pbar=False)
            assert (late.message, late.input_len, early.message) == ("late", 7, "early")
            assert late.tics[0] - early.tics[0] > 0.15

    asyncio.run(main())


def test_results_are_printed_and_kept(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    raw = [RawResult(7, 2, "x", [10.0, 10.1, 10.2, 10.4]), RawResult(None, 1, "ab", [10.0, 10.3, 10.5])]
    assert process_benchmark_results(raw) is None
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "Num requests: #2, Num tokens: #7",
        "TTFT: 200.0000 ms (p50: 300.0000 ms, p90: 300.0000 ms, p99: 300.0000 ms, max: 300.0000 ms)",
        "TPOT: 166.6667 ms (p50: 200.0000 ms, p90: 200.0000 ms, p99: 200.0000 ms, max: 200.0000 ms)",
        "E2E: 0.4500 s (p50: 0.5000 s, p90: 0.5000 s, p99: 0.5000 s, max: 0.5000 s)",
        "Duration: 0.50 s",
        "Throughput: 14.00 token/s, 4.0000 req/s",
    ]
    result = process_benchmark_results(raw, llm.tokenizer)
    assert result is not None
    assert [one.input_len for one in result.raw_data] == [7, 2]
    assert BenchmarkResult.from_json(result.as_json()) == result
    assert result.as_json()[0] == [7, 2, 10.0, 10.1, 10.2, 10.4]
    assert BenchOneResult.from_json([1, 2, 0.5]) == BenchOneResult([0.5], 1, 2)


def test_no_models_and_no_results() -> None:
    class Empty:
        async def __aiter__(self) -> Any:
            for item in ():
                yield item

    client = SimpleNamespace(models=SimpleNamespace(list=Empty))
    with pytest.raises(ValueError, match="no model"):
        asyncio.run(get_model_name(client))
    with pytest.raises(ValueError, match="no results"):
        process_benchmark_results([])

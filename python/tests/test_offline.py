"""minisgl.benchmark.offline: the documented draws, result and command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minisgl.benchmark import offline
from minisgl.benchmark.offline import run, workload
from minisgl.llm import LLM


def test_offline_benchmark_runs(tiny: str) -> None:
    r = run(
        tiny,
        num_seqs=6,
        max_input_len=40,
        max_output_len=16,
        dtype="float32",
        max_running_req=8,
        num_page_override=1024,
        max_seq_len_override=128,
    )
    assert set(r) == {"output_tokens", "seconds", "throughput"}
    assert r["output_tokens"] == 42
    assert r["throughput"] == pytest.approx(42 / r["seconds"])


def test_the_documented_workload_has_its_size() -> None:
    prompts, params = workload(256, 1024, 1024, 151936)
    assert sum(map(len, prompts)) == 145969
    assert sum(p.max_tokens for p in params) == 139160
    assert {(p.temperature, p.ignore_eos) for p in params} == {(0.6, True)}
    assert max(max(ids) for ids in prompts) == 10000


def test_a_small_vocabulary_changes_ids_but_no_length() -> None:
    small, large = workload(8, 100, 50, 320), workload(8, 100, 50, 151936)
    assert small[0] == [[token % 320 for token in prompt] for prompt in large[0]]
    assert small[1] == large[1]


@pytest.mark.parametrize("name", ["num_seqs", "max_input_len", "max_output_len"])
def test_numbers_that_are_too_small(tiny: str, name: str) -> None:
    numbers = {"num_seqs": 2, "max_input_len": 40, "max_output_len": 20, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        run(tiny, **numbers)


COMMAND = (
    "--num-seqs 6 --max-input-len 40 --max-output-len 16 --page-size 16 --cuda-graph-max-bs 256 --dtype float32 "
    "--max-running-requests 4 --num-pages 64 --max-prefill-length 64 --cache-type naive --threads 1"
)


def test_the_command_line_takes_engine_flags(
    tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    init = LLM.__init__

    def record(self: LLM, model_path: str, dtype: Any = "bfloat16", **kwargs: Any) -> None:
        seen.append({"dtype": dtype, **kwargs})
        init(self, model_path, dtype, **kwargs)

    monkeypatch.setattr(LLM, "__init__", record)
    assert offline.main(["--model", tiny, *COMMAND.split()]) == 0
    assert capsys.readouterr().out.startswith("Total: 42tok, Time: ")
    want = {
        "dtype": "float32",
        "page_size": 16,
        "cuda_graph_max_bs": 256,
        "max_running_req": 4,
        "num_page_override": 64,
        "max_extend_tokens": 64,
        "cache_type": "naive",
        "num_threads": 1,
    }
    assert {name: seen[0].get(name) for name in want} == want
    assert offline.main(["--model", tiny, "--json", *COMMAND.split()]) == 0
    assert json.loads(capsys.readouterr().out)["output_tokens"] == 42


@pytest.mark.parametrize("flags", [["--page-size", "0"], ["--attn", "warp"], ["--num-seqs", "0"]])
def test_bad_values_are_told(tiny: str, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert offline.main(["--model", tiny, *flags]) == 1
    assert "must be" in capsys.readouterr().err

"""Log-probabilities and penalties through the Python API."""

from __future__ import annotations

import math
from typing import Any

import pytest

from minisgl.core import SamplingParams
from minisgl.llm import LLM


def log_softmax(logits: list[float]) -> list[float]:
    total = math.log(sum(map(math.exp, logits)))
    return [x - total for x in logits]


def test_logprobs_are_transformers(llm: LLM, expected: list[dict[str, Any]]) -> None:
    prompt = next(p for p in expected if len(p["ids"]) > 1)
    params = SamplingParams(max_tokens=3, ignore_eos=True, logprobs=5, prompt_logprobs=True)
    [out] = llm.generate([prompt["ids"]], params)
    assert [t["token_id"] for t in out["logprobs"] or []] == out["token_ids"]
    assert [t["token_id"] for t in out["prompt_logprobs"] or []] == prompt["ids"][1:]
    tokens = llm.tokenizer.vocab_size
    for got, logits in (
        ((out["prompt_logprobs"] or [])[0], prompt["first"]),
        ((out["logprobs"] or [])[0], prompt["last"]),
    ):
        want = log_softmax(logits[:tokens])
        assert got["logprob"] == pytest.approx(want[got["token_id"]], abs=2e-4)
        best = sorted(range(tokens), key=lambda i: -want[i])[:5]
        assert [t["token_id"] for t in got["top_logprobs"]] == best


def test_nothing_is_reported_unless_asked_for(llm: LLM) -> None:
    [out] = llm.generate([[1, 2]], SamplingParams(max_tokens=1))
    assert out["logprobs"] is None
    assert out["prompt_logprobs"] is None


def test_stream_reports_what_generate_does(llm: LLM) -> None:
    params = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=2, prompt_logprobs=True)
    [out] = llm.generate([[5, 6, 7]], params)
    steps = [step for step in llm.stream([5, 6, 7], params) if step.token_id is not None]
    assert [step.logprob for step in steps] == out["logprobs"]
    assert steps[0].prompt_logprobs == out["prompt_logprobs"]
    assert all(step.prompt_logprobs is None for step in steps[1:])


def test_logit_bias_and_penalties_reach_the_engine(llm: LLM) -> None:
    biased = SamplingParams(max_tokens=4, ignore_eos=True, logit_bias={65: 100.0, 66: 90.0})
    [out] = llm.generate([[1]], biased)
    assert out["token_ids"] == [65] * 4
    biased.frequency_penalty, biased.max_tokens = 2.0, 40
    [out] = llm.generate([[1]], biased)
    assert set(out["token_ids"]) == {65, 66}


def test_min_tokens_holds_the_end_back(llm: LLM) -> None:
    eos = llm.eos_token_id
    assert eos is not None
    [out] = llm.generate([[1]], SamplingParams(max_tokens=9, min_tokens=4, logit_bias={eos: 100.0}))
    assert (len(out["token_ids"]), out["finish_reason"]) == (4, "stop")


def test_a_token_that_is_none_is_refused(llm: LLM) -> None:
    with pytest.raises(ValueError, match=r"logit_bias: has token 5000000"):
        llm.generate([[1]], SamplingParams(logit_bias={5_000_000: 1.0}))

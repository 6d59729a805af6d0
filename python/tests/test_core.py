"""Sampling parameters are checked when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from minisgl.core import SamplingParams


def test_defaults_are_mini_sglangs() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p) == (0.0, -1, 1.0)
    assert (params.ignore_eos, params.max_tokens) == (False, 1024)
    assert params.is_greedy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -2),
        ("top_p", 0),
        ("top_p", 1.0001),
        ("top_p", float("nan")),
        ("min_p", 1.0),
        ("min_p", -0.5),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("seed", -1),
        ("seed", 2**64),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", float("nan")),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 2.1),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", dict.fromkeys(range(1025), 1.0)),
        ("min_tokens", -1),
        ("min_tokens", 1025),
        ("logprobs", -1),
        ("logprobs", 21),
        ("prompt_logprobs", True),
    ],
)
def test_out_of_range_is_a_value_error(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be"):
        SamplingParams(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "0.5"),
        ("temperature", None),
        ("temperature", True),
        ("top_k", 1.0),
        ("top_k", True),
        ("max_tokens", "16"),
        ("max_tokens", None),
        ("ignore_eos", 1),
        ("seed", 1.5),
        ("seed", False),
        ("presence_penalty", "1"),
        ("logit_bias", [1]),
        ("min_tokens", 1.0),
        ("logprobs", True),
        ("prompt_logprobs", 1),
    ],
)
def test_wrong_type_is_a_type_error(field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{field} must be"):
        SamplingParams(**{field: value})


def test_edges_are_allowed() -> None:
    params = SamplingParams(temperature=1, top_k=0, top_p=1, max_tokens=1, seed=2**64 - 1)
    assert isinstance(params.temperature, float)
    assert not params.is_greedy
    assert SamplingParams(temperature=1, top_k=1).is_greedy


def test_number_like_objects_become_plain_numbers() -> None:
    class Int64:
        def __index__(self) -> int:
            return 7

    class Float32:
        def __float__(self) -> float:
            return 0.5

    params = SamplingParams(max_tokens=Int64(), temperature=Float32())  # type: ignore[arg-type]
    assert type(params.max_tokens) is int
    assert (params.max_tokens, params.temperature) == (7, 0.5)


def test_a_misspelt_field_is_refused() -> None:
    params = SamplingParams()
    with pytest.raises(AttributeError):
        params.max_token = 5  # type: ignore[attr-defined]

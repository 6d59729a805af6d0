"""Forms of generate's and chat's arguments, before any work."""

from __future__ import annotations

from typing import Any

import pytest

from minisgl.core import SamplingParams
from minisgl.llm.prompts import chat_requests, generate_requests

TEMPLATE: dict[str, Any] = {}


class Array:
    """Acts as numpy's and torch's arrays do."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def tolist(self) -> list[Any]:
        return self.values


def prompts_of(prompts: Any) -> list[Any]:
    return [r.get("text", r.get("token_ids")) for r in generate_requests(prompts, None)]


@pytest.mark.parametrize(
    ("prompts", "want"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        ([[1, 2]], [[1, 2]]),
        ([(1, 2), "a"], [[1, 2], "a"]),
        ([Array([1, 2])], [[1, 2]]),
        (Array([[1], [2]]), [[1], [2]]),
        ([""], [""]),
    ],
)
def test_a44_forms_that_work(prompts: Any, want: list[Any]) -> None:
    assert prompts_of(prompts) == want


@pytest.mark.parametrize(
    ("prompts", "hint"),
    [
        ("hello", r"one string.*\['hello'\]"),
        ([1, 2, 3], r"list of ints.*\[\[1, 2, 3\]\]"),
        (Array([1, 2]), "list of ints"),
        (None, "NoneType"),
        ({"a": 1}, "dict"),
        (b"abc", "bytes"),
        ([None], r"prompts\[0\] must be"),
        (["a", b"b"], r"prompts\[1\] must be"),
        ([[1, "2"]], r"prompts\[0\]\[1\] must be a token id"),
        ([[1, 2.0]], r"prompts\[0\]\[1\] must be a token id"),
        ([[True]], r"prompts\[0\]\[0\] must be a token id"),
    ],
)
def test_a44_other_forms_are_type_errors_with_a_hint(prompts: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        generate_requests(prompts, None)


@pytest.mark.parametrize(
    ("prompts", "hint"),
    [
        (["a", []], r"prompts\[1\] is empty"),
        ([[-1]], r"prompts\[0\]\[0\].*-1"),
        ([[2**31]], r"prompts\[0\]\[0\].*2147483648"),
    ],
)
def test_bad_token_lists_are_value_errors(prompts: Any, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        generate_requests(prompts, None)


def test_params_one_for_all_or_one_each() -> None:
    one = generate_requests(["a", "b"], SamplingParams(max_tokens=3))
    assert [r["params"]["max_tokens"] for r in one] == [3, 3]
    each = [SamplingParams(max_tokens=1), SamplingParams(max_tokens=2)]
    assert [r["params"]["max_tokens"] for r in generate_requests(["a", "b"], each)] == [1, 2]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a45_numbers_that_differ_are_a_value_error(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} sampling_params for 3 prompts"):
        generate_requests(["a", "b", "c"], [SamplingParams()] * count)


@pytest.mark.parametrize("params", [{"max_tokens": 3}, 5, "greedy"])
def test_other_params_are_type_errors(params: Any) -> None:
    with pytest.raises(TypeError, match="sampling_params must be SamplingParams"):
        generate_requests(["a"], params)


def test_params_changed_after_their_making_are_checked_again() -> None:
    params = SamplingParams()
    params.max_tokens = 0
    with pytest.raises(ValueError, match="max_tokens"):
        generate_requests(["a"], params)


def test_huge_numbers_are_clamped() -> None:
    params = generate_requests(["a"], SamplingParams(max_tokens=10**30, top_k=10**30))[0]["params"]
    assert params["max_tokens"] == params["top_k"] == 2**31 - 1


def test_one_conversation_or_a_list() -> None:
    hello = [{"role": "user", "content": "hello"}]
    alone = chat_requests(hello, None, TEMPLATE)
    assert [(r["name"], r["messages"]) for r in alone] == [("messages", hello)]
    two = chat_requests([hello, hello], None, TEMPLATE)
    assert [r["name"] for r in two] == ["messages[0]", "messages[1]"]


@pytest.mark.parametrize(
    ("messages", "error", "hint"),
    [
        ("hello", TypeError, "messages must be a list"),
        (["hello"], TypeError, r"messages\[0\] must be a list of dicts"),
        ([{"content": "a"}], TypeError, r"messages\[0\] must be a dict with role"),
        ([[{"role": "user"}], []], ValueError, r"messages\[1\] is empty"),
    ],
)
def test_bad_conversations(messages: Any, error: type[Exception], hint: str) -> None:
    with pytest.raises(error, match=hint):
        chat_requests(messages, None, TEMPLATE)

"""The engine's errors become Python's."""

from __future__ import annotations

import json

import pytest

from minisgl._errors import translate


@pytest.mark.parametrize(
    ("kind", "exception"),
    [
        ("invalid", ValueError),
        ("type", TypeError),
        ("not_found", FileNotFoundError),
        ("permission", PermissionError),
        ("model", ValueError),
        ("closed", RuntimeError),
        ("internal", RuntimeError),
    ],
)
def test_each_kind_has_its_exception(kind: str, exception: type[Exception]) -> None:
    error = translate(RuntimeError(json.dumps({"kind": kind, "message": "why"})))
    assert type(error) is exception
    assert str(error) == "why"


def test_the_field_comes_first() -> None:
    told = {"kind": "invalid", "field": "prompts[3]", "message": "is empty"}
    assert str(translate(RuntimeError(json.dumps(told)))) == "prompts[3]: is empty"


@pytest.mark.parametrize("text", ["plain", "[1]", "{}", '{"kind": "other", "message": ""}'])
def test_other_errors_stay_as_they_are(text: str) -> None:
    error = RuntimeError(text)
    assert translate(error) is error

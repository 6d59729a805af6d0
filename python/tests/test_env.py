"""MINISGL_* variables."""

from __future__ import annotations

import pytest

from minisgl.env import Env, parse_bool, parse_size


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Env.__dataclass_fields__:
        monkeypatch.delenv(f"MINISGL_{name}", raising=False)
    env = Env()
    assert (env.SHELL_MAX_TOKENS, env.SHELL_TOP_K) == (2048, -1)
    assert (env.SHELL_TOP_P, env.SHELL_TEMPERATURE) == (1.0, 0.6)
    assert env.FLASHINFER_USE_TENSOR_CORES is None
    assert env.DISABLE_OVERLAP_SCHEDULING is False
    assert env.PYNCCL_MAX_BUFFER_SIZE == 2**30


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINISGL_SHELL_MAX_TOKENS", "7")
    monkeypatch.setenv("MINISGL_DISABLE_OVERLAP_SCHEDULING", "Yes")
    monkeypatch.setenv("MINISGL_FLASHINFER_USE_TENSOR_CORES", "0")
    env = Env()
    assert env.SHELL_MAX_TOKENS == 7
    assert env.DISABLE_OVERLAP_SCHEDULING is True
    assert env.FLASHINFER_USE_TENSOR_CORES is False


def test_an_unreadable_value_warns_and_keeps_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINISGL_SHELL_TOP_K", "many")
    with pytest.warns(UserWarning, match="MINISGL_SHELL_TOP_K"):
        assert Env().SHELL_TOP_K == -1


@pytest.mark.parametrize(("text", "size"), [("512M", 512 * 2**20), ("1G", 2**30), ("1gb", 2**30), ("17", 17)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "1.5G", "-1", "1X"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_what_is_no_bool() -> None:
    with pytest.raises(ValueError, match="neither true nor false"):
        parse_bool("maybe")

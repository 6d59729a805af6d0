"""What the engine logs reaches Python's logging."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator

import pytest

from minisgl import _logs
from minisgl.llm import LLM

Run = Callable[[str], str]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    level, handlers = _logs.logger.level, list(_logs.logger.handlers)
    yield
    _logs.logger.setLevel(level)
    _logs.logger.handlers[:] = handlers


def test_the_engine_logs_to_the_logger(tiny: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "minisgl")
    time.sleep(0.6)  # for the engine to hear of the level
    before = time.time()
    with LLM(tiny, dtype="float32", num_threads=1):
        pass
    for _ in range(500):
        records = [record for record in caplog.records if record.getMessage().startswith("model loaded")]
        if records:
            break
        time.sleep(0.01)
    (record,) = records
    assert (record.name, record.levelname) == ("minisgl", "DEBUG")
    assert record.attributes["architecture"] == "LlamaForCausalLM"  # type: ignore[attr-defined]
    assert "architecture=LlamaForCausalLM" in record.getMessage()
    assert before - 1 < record.created < time.time() + 1


def test_a_line_becomes_a_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "minisgl")
    line = {"time": 1.25, "level": 30, "msg": "100% odd", "error": "%s"}
    _logs.log(json.dumps(line))
    _logs.log(json.dumps({**line, "level": 20}))
    (record,) = caplog.records
    assert (record.getMessage(), record.created, record.msecs) == ("100% odd error=%s", 1.25, 250)


def test_log_level_is_heeded_where_the_program_set_none() -> None:
    _logs.logger.setLevel(logging.NOTSET)
    _logs.configure("debug")
    assert _logs.logger.level == logging.DEBUG
    _logs.configure("ERROR")
    assert _logs.logger.level == logging.DEBUG
    _logs.logger.setLevel(logging.NOTSET)
    _logs.configure(None)
    _logs.configure("loud")
    assert _logs.logger.level == logging.NOTSET


LOADED = """
    import logging
    {}
    from minisgl.llm import LLM
    LLM(TINY, dtype="float32", num_threads=1).shutdown()
"""


@pytest.mark.parametrize(
    ("level", "set_up", "lines"),
    [("", "", 0), ("DEBUG", "", 1), ("INFO", "", 0), ("", "logging.basicConfig(level=10)", 1)],
)
def test_by_default_only_warnings_are_seen(
    python: Callable[[str], object], monkeypatch: pytest.MonkeyPatch, level: str, set_up: str, lines: int
) -> None:
    monkeypatch.setenv("LOG_LEVEL", level)
    process = python(LOADED.format(set_up))
    out, err = process.communicate(timeout=60)  # type: ignore[attr-defined]
    assert (process.returncode, out) == (0, "")  # type: ignore[attr-defined]
    assert err.count("model loaded") == lines, err

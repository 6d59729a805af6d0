"""Passes what the engine logs to Python's ``logging``, as the logger "minisgl"."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable

NextLogs = Callable[[int, int], str]

logger = logging.getLogger("minisgl")

# How long a change of the logger's level may go unnoticed.
_WAIT_MS = 500
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def start(next_logs: NextLogs) -> None:
    """Starts the thread that takes lines from the engine.

    Args:
        next_logs: The native module's NextLogs.
    """
    configure(os.environ.get("LOG_LEVEL"))
    take(next_logs, 0)  # tells the engine the level before it logs anything
    threading.Thread(target=_take_all, args=(next_logs,), name="minisgl-logs", daemon=True).start()


def configure(level: str | None) -> None:
    """Lets the LOG_LEVEL variable set the level where the program has set none.

    Lines go to standard error then, unless the program has handlers of its own.
    """
    if not level or logger.level != logging.NOTSET:
        return
    try:
        logger.setLevel(level.strip().upper())
    except ValueError:
        logger.warning("LOG_LEVEL: %r is no level of Python's logging", level)
        return
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)


def take(next_logs: NextLogs, timeout_ms: int) -> None:
    """Waits for lines, if there are none, and logs all that have come."""
    for line in next_logs(logger.getEffectiveLevel(), timeout_ms).splitlines():
        log(line)


def log(line: str) -> None:
    """Logs one line of the engine (bindings/native/logs.go).

    The record's ``attributes`` are the values that the engine gave with the message.
    """
    told = json.loads(line)
    level, created, message = told.pop("level"), told.pop("time"), told.pop("msg")
    if not logger.isEnabledFor(level):
        return
    text = " ".join([message, *(f"{name}={value}" for name, value in told.items())])
    record = logger.makeRecord(logger.name, level, "minisgl", 0, text, (), None, extra={"attributes": told})
    record.created = created
    record.msecs = created % 1 * 1000
    logger.handle(record)


def _take_all(next_logs: NextLogs) -> None:
    while True:
        take(next_logs, _WAIT_MS)

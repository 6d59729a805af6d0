"""Calls into the native module: loading, jobs, forked processes.

The module is loaded on first use. What takes time is a job there: it is started,
polled and taken, so that Python sees signals between two polls.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from minisgl import _gpu, _logs
from minisgl._errors import translate

POLL_MS = 50

_lock = threading.Lock()
_module: ModuleType | None = None
_pid: int | None = None  # of the process that loaded the module


def call(name: str, *args: Any) -> Any:
    """Calls a function of the native module (bindings/native).

    Raises:
        RuntimeError: In a process that was forked after the module was loaded: Go's
            threads aren't there.
    """
    function = getattr(_load(), f"native_{name}")
    try:
        return function(*args)
    except RuntimeError as error:
        raise translate(error) from None


def is_loaded_here() -> bool:
    """Tells whether this very process loaded the native module."""
    return _pid == os.getpid()


def run(
    function: str,
    *args: Any,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    step: Callable[[int], None] | None = None,
) -> Any:
    """Calls a function of the native module that starts a job, waits and returns its result.

    A job that needs the caller's part has a step, which is called with its number until
    it has ended, and must not block for much longer than POLL_MS.

    An exception on the way (KeyboardInterrupt above all) cancels the job, waits for its
    end and goes on.
    """
    started: list[int] = []
    try:
        _start(started, function, args)
        _wait(started[0], on_progress, step)
    except BaseException:
        for job in started:
            _abandon(job)
        raise
    return json.loads(call("Result", started[0]))


def wait(job: int) -> Any:
    """Waits for a job and returns its result."""
    _wait(job)
    return json.loads(call("Result", job))


def _wait(
    job: int,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    step: Callable[[int], None] | None = None,
) -> None:
    while True:
        if step is not None:
            step(job)
        status = json.loads(call("Wait", job, POLL_MS if step is None else 0))
        if on_progress is not None:
            on_progress(status)
        if status["done"]:
            return


def _start(started: list[int], function: str, args: tuple[Any, ...]) -> None:
    """Starts a job and appends its number.

    That is one step for the interpreter: a Ctrl-C during the call raises after it, and a
    number that was only returned would be lost then, and the job run on.
    """
    native = getattr(_load(), f"native_{function}")
    try:
        started.extend(map(native, *([arg] for arg in args)))
    except RuntimeError as error:
        raise translate(error) from None


def _abandon(job: int) -> None:
    try:
        call("Cancel", job)
        while not json.loads(call("Wait", job, POLL_MS))["done"]:
            pass
    finally:
        call("Forget", job)


def _load() -> ModuleType:
    global _module, _pid
    if _module is None:
        with _lock:
            if _module is None:
                module = _import()
                _pid = os.getpid()
                _module = module
                _logs.start(module.native_NextLogs)
                atexit.register(_take_last_logs, module)
    if _pid != os.getpid():
        raise RuntimeError(
            "minisgl can't be used in a forked child process; start the process with the "
            '"spawn" method: multiprocessing.get_context("spawn")'
        )
    return _module


def _take_last_logs(module: ModuleType) -> None:
    if is_loaded_here():
        _logs.take(module.native_NextLogs, 0)


def _import() -> ModuleType:
    # The engine fetches its known models with pip; it reads the environment once.
    os.environ.setdefault("MINISGL_PYTHON", sys.executable)
    try:
        return importlib.import_module(_gpu.native_module())
    except ModuleNotFoundError as error:
        raise ImportError(
            "minisgl's native module is not built; run `make build` in the repository "
            "(it is built for one version of Python)"
        ) from error

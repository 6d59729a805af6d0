"""``python -m minisgl --model …`` starts the server, or with ``--shell`` a conversation."""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType

from minisgl import _binding


def main(args: list[str]) -> int:
    """Serves, or with --shell talks, until the end; returns the exit code."""
    return run(["serve", *args])


def program() -> None:
    """Is the program minisgl: the engine's whole command line, serve and the other commands."""
    sys.exit(run(sys.argv[1:]))


def run(args: list[str]) -> int:
    """Runs a command of the engine's command line; returns the exit code.

    The first SIGINT or SIGTERM lets running requests end, the second ends at once. While
    the command runs SIGINT is its own matter: Python sees it before, and after a first one.
    """
    job: int | None = None
    draining = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal draining
        if number == signal.SIGINT or job is None or draining:
            os._exit(128 + number)
        draining = True
        _binding.call("Cancel", job)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    job = _binding.call("Serve", json.dumps(args))
    code: int = _binding.wait(job)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``python -m minisgl --model …`` starts the server, or with ``--shell`` a conversation."""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType

from minisgl import _binding


def main(args: list[str]) -> int:
    """Runs the command line and returns the exit code."""
    for_server = [arg for arg in args if not _asks_for_shell(arg)]
    if for_server == args:
        return serve(args)
    from minisgl import shell

    return shell.main(for_server)


def _asks_for_shell(arg: str) -> bool:
    """Tells whether an argument is --shell-mode, or as argparse allows, a beginning of it."""
    return len(arg) >= len("--sh") and "--shell-mode".startswith(arg)


def program() -> None:
    """Is the program minisgl: the engine's whole command line, serve and the other commands."""
    sys.exit(run(sys.argv[1:]))


def serve(args: list[str]) -> int:
    """Serves until a signal comes; returns the exit code."""
    return run(["serve", *args])


def run(args: list[str]) -> int:
    """Runs a command of the engine's command line; returns the exit code.

    The first SIGINT or SIGTERM lets running requests end, the second ends at once.
    """
    job: int | None = None
    draining = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal draining
        if job is None or draining:
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

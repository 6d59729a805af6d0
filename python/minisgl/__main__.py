"""``python -m minisgl --model …`` starts the server."""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType

from minisgl import _binding


def main(args: list[str]) -> int:
    """Serves until a signal comes; returns the exit code.

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
    job = _binding.call("Serve", json.dumps(["serve", *args]))
    return _binding.wait(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

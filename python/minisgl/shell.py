"""``python -m minisgl.shell --model …``: a conversation with a model in the terminal.

It is the command ``minisgl chat``; ``--help`` shows its options. The MINISGL_SHELL_*
variables set how tokens are chosen (see ``minisgl.env``).
"""

from __future__ import annotations

import sys

from minisgl.__main__ import run


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    return run(["chat", *(sys.argv[1:] if args is None else args)])


if __name__ == "__main__":
    sys.exit(main())

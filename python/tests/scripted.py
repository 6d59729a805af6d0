"""A server whose answers a test has written: all of it is real but the model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType


class ScriptedServer:
    """``testserver`` on a free port; each request for text takes the next answer."""

    def __init__(self, program: Path, model: str, script: Path, answers: list[str], *flags: str) -> None:
        script.write_text(json.dumps(answers))
        args = [str(program), "-model", model, "-answers", str(script), *flags]
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> str:
        """Returns the server's URL."""
        assert self.process.stdout is not None
        url = self.process.stdout.readline().strip()
        assert url, "the server has not started"
        return url

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process, which does so at the end of its input."""
        self.process.communicate(timeout=60)

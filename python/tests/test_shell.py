"""``python -m minisgl.shell`` runs the engine's chat; most of it is tested there (go/internal/shell, go/cli)."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("entry", [["-m", "minisgl.shell"], ["-m", "minisgl", "--shell"]])
def test_the_program_reads_lines_up_to_their_end(tiny: str, entry: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *entry, "--model", tiny, "--dtype", "float32", "--port", "1"],
        input="hi\n/params\n/help\n/nothing\n",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MINISGL_SHELL_MAX_TOKENS": "5"},
    )
    assert done.returncode == 0, done.stderr
    assert "max_tokens           5 " in done.stdout
    assert "/reset" in done.stdout
    assert "no command /nothing" in done.stdout
    assert done.stderr.startswith("[TTFT ")


def test_bad_arguments(tiny: str) -> None:
    for arguments, code, message in [
        (["--model", tiny + "/nowhere"], 1, "nowhere"),
        (["--model", tiny, "--dummy-weight"], 2, "leave it out"),
        (["--model", tiny, "--temperature", "-1"], 2, "temperature: must be"),
    ]:
        command = [sys.executable, "-m", "minisgl.shell", *arguments]
        done = subprocess.run(command, input="hi", capture_output=True, text=True, timeout=60)
        assert done.returncode == code
        assert message in done.stderr


def test_ctrl_c_in_a_terminal(tiny: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
    command = [sys.executable, "-m", "minisgl.shell", "--model", tiny, "--device", "ref", "--ignore-eos"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([ours], [], [], 0.5)[0]:
                seen += os.read(ours, 4096).decode(errors="replace")
        seen = seen.split(text, 1)[1]

    try:
        until("/help shows the commands.")
        until("$ ")
        os.write(ours, b"hi\r")
        until("\x1b[?2004l")  # no more pastes: the answer comes
        process.send_signal(signal.SIGINT)  # while it answers
        until("[stopped")
        until("$ ")
        process.send_signal(signal.SIGINT)  # at the prompt
        until("/exit leaves.")
        until("$ ")
        os.write(ours, b"/exit\r")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)

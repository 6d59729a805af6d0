"""``python -m minisgl.shell``: commands, a conversation, Ctrl-C, history."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minisgl import shell as shell_module
from minisgl.core import SamplingParams
from minisgl.llm import LLM
from minisgl.shell import Shell, edit_lines, history_path, shell_params

SHORT = SamplingParams(max_tokens=6, ignore_eos=True)


def answer_to(llm: LLM, messages: list[dict[str, Any]]) -> str:
    return "".join(step.text for step in llm.stream_chat(messages, SHORT))


def test_a_conversation_grows_and_is_reset(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    system = {"role": "system", "content": "be brief"}
    first, second = {"role": "user", "content": "hi"}, {"role": "user", "content": "more"}
    answer = answer_to(llm, [system, first])
    shell = Shell(llm, SHORT, system="be brief")
    assert shell.handle("hi")
    assert capsys.readouterr().out == answer + "\n"
    assert shell.messages == [system, first, {"role": "assistant", "content": answer}]
    want = answer_to(llm, [*shell.messages, second])
    assert shell.handle("more")
    assert capsys.readouterr().out == want + "\n"
    assert shell.handle("/reset")
    assert shell.messages == [system]
    assert shell.handle("hi")
    assert capsys.readouterr().out == answer + "\n"


def test_commands(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(llm, SHORT)
    assert shell.handle("  ")
    assert capsys.readouterr().out == ""
    assert shell.handle("/help")
    assert "/reset" in capsys.readouterr().out
    assert shell.handle("/quit now")
    assert "no command /quit" in capsys.readouterr().out
    assert not shell.handle(" /exit ")
    assert shell.messages == []


def test_a_conversation_that_is_too_long_says_so(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(llm, SHORT)
    assert shell.handle("x" * 600)
    out = capsys.readouterr().out
    assert "at most 512" in out
    assert "/reset" in out
    assert shell.messages == []
    assert shell.handle("hi")
    assert len(shell.messages) == 2


def test_ctrl_c_stops_an_answer_which_stays(
    llm: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(llm, SamplingParams(max_tokens=400, ignore_eos=True))

    class Interrupted:
        """Standard output on which Ctrl-C comes with the third piece of text."""

        pieces = 0

        def write(self, text: str) -> int:
            self.pieces += 1
            if self.pieces == 3:
                raise KeyboardInterrupt
            return len(text)

        def flush(self) -> None:
            pass

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Interrupted())
        assert shell.handle("hi")
    assert [message["role"] for message in shell.messages] == ["user", "assistant"]
    assert shell.handle("more")


def test_sampling_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell_params() == SamplingParams(temperature=0.6, max_tokens=2048)
    monkeypatch.setenv("MINISGL_SHELL_MAX_TOKENS", "7")
    monkeypatch.setenv("MINISGL_SHELL_TOP_P", "0.5")
    monkeypatch.setattr(shell_module, "ENV", type(shell_module.ENV)())
    assert shell_params() == SamplingParams(temperature=0.6, max_tokens=7, top_p=0.5)


@pytest.mark.parametrize("entry", [["-m", "minisgl.shell"], ["-m", "minisgl", "--shell", "--port", "1"]])
def test_the_program_reads_lines_up_to_their_end(tiny: str, entry: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *entry, "--model", tiny, "--dtype", "float32"],
        input="hi\n/help\n/nothing\n",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MINISGL_SHELL_MAX_TOKENS": "5"},
    )
    assert done.returncode == 0, done.stderr
    assert "/reset" in done.stdout
    assert "no command /nothing" in done.stdout
    assert done.stderr == ""


def test_bad_arguments(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell_module.main(["--model", tiny + "/nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        shell_module.main(["--model", tiny, "--dummy-weight"])


def test_history_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history_path()
    assert path == tmp_path / "minisgl/shell_history"
    script = "import readline; from minisgl.shell import *; edit_lines(history_path()); readline.add_history('hello')"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert path.read_text().count("hello") == 2
    assert path.stat().st_mode & 0o077 == 0


def test_commands_are_completed(tmp_path: Path) -> None:
    import readline

    edit_lines(tmp_path / "history")
    complete = readline.get_completer()
    assert complete is not None
    assert [complete("/re", 0), complete("/re", 1)] == ["/reset", None]
    assert complete("he", 0) is None


def test_ctrl_c_in_a_terminal(tiny: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    command = [sys.executable, "-m", "minisgl.shell", "--model", tiny, "--dtype", "float32", "--threads", "1"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = ""

    def until(text: str, again: Callable[[], None] | None = None) -> None:
        """Reads up to a text; does something again whenever nothing comes."""
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([ours], [], [], 0.5)[0]:
                seen += os.read(ours, 4096).decode(errors="replace")
            elif again is not None:
                again()
        seen = seen.split(text, 1)[1]

    try:
        until("/help shows the commands.")
        until("$ ")
        # Readline misses a signal that comes just before it waits, so there may be a second.
        until("/exit or Ctrl-D leaves.", again=lambda: process.send_signal(signal.SIGINT))
        until("$ ")
        os.write(ours, b"/exit\n")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)

"""``python -m minisgl.shell --model …``: a conversation with a model in the terminal.

The MINISGL_SHELL_* variables set how tokens are chosen (see ``minisgl.env``).
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from minisgl.core import SamplingParams
from minisgl.env import ENV
from minisgl.llm import LLM
from minisgl.llm.flags import add_engine_flags, engine_arguments

PROMPT = "$ "
COMMANDS = {
    "/reset": "forget the conversation",
    "/exit": "leave, as Ctrl-D does",
    "/help": "show this list",
}
_HELP = "\n".join(f"  {name:<8}{text}" for name, text in COMMANDS.items()) + "\n  Ctrl-C  stop an answer"
_HISTORY_LINES = 1000
_SERVER_FLAGS = ("--host", "--port", "--num-tokenizer", "--tokenizer-count")


class Shell:
    """A conversation: messages so far, and what is done with a line."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None = None) -> None:
        self._llm = llm
        self._params = params
        self._opening = [{"role": "system", "content": system}] if system else []
        self.messages: list[dict[str, Any]] = list(self._opening)

    def handle(self, line: str) -> bool:
        """Obeys a command or answers a message; returns whether to go on."""
        text = line.strip()
        if text == "/exit":
            return False
        if text == "/reset":
            self.messages = list(self._opening)
        elif text == "/help":
            print(_HELP)
        elif text.startswith("/"):
            print(f"There is no command {text.split()[0]}. These are:\n{_HELP}")
        elif text:
            self._answer(line)
        return True

    def _answer(self, line: str) -> None:
        """Prints an answer as it comes; what Ctrl-C leaves of it stays in the conversation."""
        question = {"role": "user", "content": line}
        answer = ""
        try:
            with self._llm.stream_chat([*self.messages, question], self._params) as stream:
                for step in stream:
                    answer += step.text
                    print(step.text, end="", flush=True)
        except KeyboardInterrupt:
            print(" (stopped)", end="")
        except ValueError as error:
            print(f"{error}\n/reset begins a new conversation.")
            return
        print()
        self.messages += [question, {"role": "assistant", "content": answer}]


def shell_params() -> SamplingParams:
    """Returns the sampling that the MINISGL_SHELL_* variables ask for."""
    return SamplingParams(
        max_tokens=ENV.SHELL_MAX_TOKENS,
        top_k=ENV.SHELL_TOP_K,
        top_p=ENV.SHELL_TOP_P,
        temperature=ENV.SHELL_TEMPERATURE,
    )


def talk(shell: Shell) -> None:
    """Reads lines up to the end of the input, or /exit."""
    while True:
        try:
            if not shell.handle(input(PROMPT)):
                return
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("\n/exit or Ctrl-D leaves.")


def history_path() -> Path:
    """Returns where lines are kept from one shell to the next."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "minisgl" / "shell_history"


def edit_lines(path: Path) -> None:
    """Gives ``input`` line editing, completion of commands, and a history in a file."""
    try:
        import atexit
        import readline
    except ImportError:  # not on every platform
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        readline.read_history_file(path)
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer_delims(" ")
    readline.set_completer(lambda text, n: ([*(c for c in COMMANDS if text and c.startswith(text)), None])[n])
    readline.parse_and_bind("tab: complete")

    def save() -> None:
        with suppress(OSError):
            readline.write_history_file(path)

    atexit.register(save)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m minisgl.shell", description="Talk with a model.")
    parser.add_argument("--system", help="the system message")
    add_engine_flags(parser)
    for flag in _SERVER_FLAGS:  # command lines of servers work with --shell too
        parser.add_argument(flag, help=argparse.SUPPRESS)
    return parser


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    parser = _parser()
    parsed = parser.parse_args(args)
    if parsed.use_dummy_weight:
        parser.error("--dummy-weight has nothing to say; leave it out")
    arguments = {**engine_arguments(parsed), "max_running_req": 1}
    try:
        with LLM(**arguments) as llm:
            if sys.stdin.isatty():
                edit_lines(history_path())
                print(f"{llm.info['model']} on {llm.info['device']}. /help shows the commands.")
            talk(Shell(llm, shell_params(), parsed.system))
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while the model is loaded
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

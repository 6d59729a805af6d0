"""What the tests of the engine share: a tiny random model and one LLM of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedServer
from server import Server

from minisgl.llm import LLM

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "go/internal/model/testdata/tiny/llama-tied"

# A shell without job control starts its background jobs with SIGINT ignored, and children inherit that: then no test
# of Ctrl-C could work.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny() -> str:
    """Path of a random Llama model with a chat template; its context is 512."""
    return str(TINY)


@pytest.fixture(scope="session")
def expected() -> list[dict[str, Any]]:
    """Prompts and the greedy tokens that transformers gives for the tiny model."""
    return json.loads((TINY / "expected.json").read_text())["prompts"]


@pytest.fixture(scope="session")
def llm(tiny: str) -> Iterator[LLM]:
    with LLM(tiny, dtype="float32", num_threads=1) as engine:
        yield engine


@pytest.fixture(scope="session")
def slow_llm(tiny: str) -> Iterator[LLM]:
    """An LLM that takes seconds for 32 long answers, so that a test can be in their middle."""
    with LLM(tiny, dtype="float32", device="ref", num_threads=1) as engine:
        yield engine


@pytest.fixture(scope="session")
def tiny_server(tiny: str) -> Iterator[Server]:
    """A server of the tiny model that the tests share."""
    server = Server(tiny)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def scripted_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that ScriptedServer runs."""
    program = tmp_path_factory.mktemp("testserver") / "testserver"
    subprocess.run(["go", "build", "-o", program, "./go/internal/server/testserver"], cwd=ROOT, check=True)
    return program


@pytest.fixture
def scripted(scripted_program: Path, tiny: str, tmp_path: Path) -> Callable[..., ScriptedServer]:
    """Makes a server of answers, with flags for its parsers."""

    def make(answers: list[str], *flags: str) -> ScriptedServer:
        return ScriptedServer(scripted_program, tiny, tmp_path / "answers.json", answers, *flags)

    return make


@pytest.fixture
def python(tiny: str) -> Callable[..., subprocess.Popen[str]]:
    """Starts a script in a Python of its own; TINY is the model's path there."""

    def start(script: str) -> subprocess.Popen[str]:
        text = f"TINY = {tiny!r}\n" + textwrap.dedent(script)
        return subprocess.Popen(
            [sys.executable, "-c", text],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def run_python(python: Callable[..., subprocess.Popen[str]]) -> Callable[[str], str]:
    """Runs a script to its end, which must be exit code 0, and returns its output."""

    def run(script: str) -> str:
        process = python(script)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    return run

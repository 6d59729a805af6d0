"""``python -m minisgl``: start, answer, drain."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from server import Server


@pytest.fixture
def server(tiny: str) -> Iterator[Server]:
    started = Server(tiny)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.kill()


def test_a_chat_and_a_clean_end(server: Server) -> None:
    with server.chat(max_tokens=5, ignore_eos=True, temperature=0) as response:
        answer = json.load(response)
    assert answer["usage"]["completion_tokens"] == 5
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=30) == 0


def test_a_running_answer_ends_before_the_server(server: Server) -> None:
    with server.chat(max_tokens=400, ignore_eos=True, stream=True) as response:
        assert response.readline().startswith(b"data: {")
        server.process.send_signal(signal.SIGINT)
        assert response.read().rstrip().endswith(b"data: [DONE]")
    assert server.process.wait(timeout=30) == 0


def test_a_bad_flag_is_an_error() -> None:
    done = subprocess.run([sys.executable, "-m", "minisgl", "--no-such-flag"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "no-such-flag" in done.stderr


def test_the_program_has_the_other_commands_too() -> None:
    program = "from minisgl.__main__ import program; program()"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "serve" in done.stdout
    assert "generate" in done.stdout


def test_a_second_signal_ends_at_once(tiny: str) -> None:
    server = Server(tiny, "--device", "ref")  # slow enough for answers to be in their middle
    try:
        server.wait_until_ready()
        with server.chat(max_tokens=400, n=16, ignore_eos=True, stream=True) as response:
            assert response.readline().startswith(b"data: {")
            server.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 30
            while server.health() != 503 and time.monotonic() < deadline:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(timeout=30) == 128 + signal.SIGTERM
    finally:
        server.kill()

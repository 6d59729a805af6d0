"""``python -m minisgl``: start, answer, drain."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import pytest


class Server:
    """A server on a free port."""

    def __init__(self, model: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        args = ["--model", model, "--dtype", "float32", "--port", str(self.port)]
        self.process = subprocess.Popen([sys.executable, "-m", "minisgl", *args])

    def open(self, path: str, body: dict[str, Any] | None = None) -> HTTPResponse:
        url = f"http://127.0.0.1:{self.port}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                self.open("/health").close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the server isn't ready; its exit code is {self.process.poll()}")

    def chat(self, **options: Any) -> HTTPResponse:
        messages = [{"role": "user", "content": "hi"}]
        return self.open("/v1/chat/completions", {"model": "m", "messages": messages, **options})


@pytest.fixture
def server(tiny: str) -> Iterator[Server]:
    started = Server(tiny)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.process.kill()
        started.process.wait()


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

"""A server of the tiny model on a free port, for tests."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from typing import Any


def free_port() -> int:
    """Returns a TCP port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Server:
    """``python -m minisgl`` on a free port."""

    def __init__(self, model: str, *flags: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        args = ["--model", model, "--dtype", "float32", "--port", str(self.port), *flags]
        self.process = subprocess.Popen([sys.executable, "-m", "minisgl", *args])

    def open(self, path: str, body: dict[str, Any] | None = None) -> HTTPResponse:
        """Sends a request, a POST if it has a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        response: HTTPResponse = urllib.request.urlopen(request, timeout=60)
        return response

    def wait_until_ready(self) -> None:
        """Waits until the model is loaded."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                self.open("/health").close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the server isn't ready; its exit code is {self.process.poll()}")

    def health(self) -> int:
        """Returns the status of /health; 0 if nobody answers."""
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=10) as response:
                status: int = response.status
                return status
        except urllib.error.HTTPError as refusal:
            return refusal.code
        except OSError:
            return 0

    def chat(self, **options: Any) -> HTTPResponse:
        """Asks for an answer to "hi"."""
        messages = [{"role": "user", "content": "hi"}]
        return self.open("/v1/chat/completions", {"model": "m", "messages": messages, **options})

    def kill(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
